"""The masters that replicas name: whose word counts, and until when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import NotMasterError
from eruca.core.routing import master_book
from eruca.core.routing.master_book import MasterBook

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def named(url: str, epoch: int) -> NotMasterError:
    return NotMasterError("a standby", epoch=epoch, master_urls={"default": url})


def learn(book: MasterBook, epoch: int, *urls: str, master: bool = True) -> None:
    first = 0 if master else 1
    book.learn("broker-a", epoch, {i: {"default": url} for i, url in enumerate(urls, first)})


def test_a_master_that_was_named_is_asked_at_once_the_next_time() -> None:
    book = MasterBook()
    assert book.place(A) == A

    assert book.redirected(A, named(B, 8)) == B

    assert book.place(A) == B
    assert book.place(C) == C


def test_the_replicas_of_a_broker_are_known_by_the_url_of_any() -> None:
    book = MasterBook()
    learn(book, 8, A, B)
    book.learn("broker-b", 3, {0: {"default": C}})

    assert (book.replicas(A), book.replicas(B)) == ([A, B], [B, A])
    assert book.replicas(C) == [C]
    assert book.replicas("http://d:1") == []


def test_a_smaller_epoch_than_the_routes_does_not_count() -> None:
    book = MasterBook()
    learn(book, 8, A, B)

    assert book.redirected(B, named(C, 7)) is None
    assert book.place(B) == B
    assert book.redirected(A, named(B, 8)) == B


def test_a_smaller_epoch_than_an_earlier_redirects_does_not_count() -> None:
    book = MasterBook()
    book.redirected(A, named(B, 8))

    assert book.redirected(A, named(C, 7)) is None
    assert book.place(A) == B
    assert book.redirected(A, named(C, 9)) == C


def test_a_later_redirect_takes_back_one_in_the_opposite_direction() -> None:
    book = MasterBook()
    book.redirected(A, named(B, 8))

    assert book.redirected(B, named(A, 9)) == A

    assert (book.place(A), book.place(B)) == (A, A)


def test_a_master_that_has_named_a_later_one_is_passed_over() -> None:
    book = MasterBook()
    book.redirected(B, named(C, 9))

    assert book.redirected(A, named(B, 8)) == C
    assert book.redirected(C, named(B, 8)) is None

    assert (book.place(A), book.place(B), book.place(C)) == (C, C, C)


def test_a_route_with_the_new_master_ends_the_redirect() -> None:
    book = MasterBook()
    learn(book, 7, A, B)
    book.redirected(A, named(B, 8))

    learn(book, 7, A, B)
    assert book.place(A) == B
    learn(book, 8, A, master=False)
    assert book.place(A) == B  # nobody says yet where the master is
    learn(book, 8, B, A)

    assert book.place(A) == A  # a request to a standby is meant for it now


def test_the_successor_of_a_url_is_the_latest_master_of_its_broker() -> None:
    book = MasterBook()
    assert book.successor(A) == A
    learn(book, 7, A, B)
    assert book.successor(B) == A

    learn(book, 8, B, C)

    assert book.successor(A) == B
    book.redirected(B, named(C, 9))
    assert book.successor(A) == C


@pytest.mark.parametrize(
    "error",
    [
        NotMasterError("nobody"),
        NotMasterError("no URL", epoch=9),
        NotMasterError("no epoch", master_urls={"default": B}),
        named(A, 9),
    ],
)
def test_a_redirect_that_leads_nowhere_does_not_count(error: NotMasterError) -> None:
    book = MasterBook()

    assert book.redirected(A, error) is None
    assert book.place(A) == A


def test_the_masters_address_is_that_of_the_clients_network() -> None:
    error = NotMasterError("x", epoch=1, master_urls={"default": B, "lan": C})

    assert MasterBook("lan").redirected(A, error) == C
    assert MasterBook("wan").redirected(A, error) == B


def test_a_broker_without_replicas_leaves_no_trace() -> None:
    book = MasterBook()

    learn(book, 0, A, B)

    assert book.successor(B) == B


def test_a_forgotten_redirect_is_not_followed() -> None:
    book = MasterBook()
    book.redirected(A, named(B, 8))

    book.forget(A)

    assert book.place(A) == A


def test_a_full_book_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_book, "URL_COUNT_MAX", 4)
    book = MasterBook()
    for number in range(4):
        book.redirected(f"http://{number}:1", named(B, 8))

    book.redirected(A, named(B, 8))

    assert book.place("http://0:1") == "http://0:1"
    assert book.place(A) == B


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.sampled_from([A, B, C]), st.integers(1, 4)),
        max_size=12,
    )
)
def test_two_urls_never_redirect_to_each_other(said: list[tuple[str, str, int]]) -> None:
    book = MasterBook()
    for url, master, epoch in said:
        book.redirected(url, named(master, epoch))

        for one in (A, B, C):
            other = book.place(one)
            assert other == one or book.place(other) != one


def test_a_wary_client_follows_only_to_replicas_that_a_name_server_has_named() -> None:
    book = MasterBook(is_wary=True)
    assert book.redirected(A, named(B, 8)) is None
    learn(book, 7, A, B)

    assert book.redirected(A, named(C, 8)) is None
    assert book.redirected(A, named("https://a:1", 8)) is None
    assert book.place(A) == A
    assert book.redirected(A, named(B, 8)) == B

    learn(book, 9, A)
    assert book.redirected(A, named(B, 10)) is None, "the route does not name it any more"


def test_a_wary_client_does_not_follow_to_another_brokers_replica() -> None:
    book = MasterBook(is_wary=True)
    learn(book, 7, A, B)
    book.learn("broker-c", 7, {0: {"default": C}})

    assert book.redirected(A, named(C, 8)) is None


def test_a_copy_knows_the_same_and_is_changed_alone() -> None:
    book = MasterBook(is_wary=True)
    learn(book, 7, A, B)
    copy = book.copy()

    assert copy.redirected(A, named(B, 8)) == B
    assert (copy.place(A), book.place(A)) == (B, A)
