"""A producer answers checks without calling the program."""

from __future__ import annotations

from eruca.core.producing.transaction_book import TransactionBook


def test_nobody_knows_what_is_under_way() -> None:
    book = TransactionBook()
    assert book.answer("t") is None

    book.begin("t")
    assert book.answer("t") == "unknown"


def test_what_was_concluded_is_known_until_the_broker_knows_it() -> None:
    book = TransactionBook()
    book.begin("t")
    book.conclude("t", "commit")
    assert book.answer("t") == "commit"

    book.settle("t")
    book.settle("t")
    assert book.answer("t") is None


def test_of_what_was_left_undecided_the_program_is_asked() -> None:
    book = TransactionBook()
    book.begin("t")
    book.conclude("t", "unknown")

    assert book.answer("t") is None


def test_an_id_that_is_used_twice_is_under_way_until_both_have_ended() -> None:
    book = TransactionBook()
    book.begin("t")
    book.begin("t")
    book.conclude("t", "rollback")
    assert book.answer("t") == "unknown"

    book.conclude("t", "commit")
    assert book.answer("t") == "commit"

    book.begin("t")
    assert book.answer("t") == "unknown"


def test_what_was_concluded_counts_until_it_is_stored_again() -> None:
    book = TransactionBook()
    book.begin("t")
    book.note_stored("t")
    book.conclude("t", "commit")

    book.begin("t")
    book.conclude("t", "unknown")
    assert book.answer("t") == "commit"

    book.begin("t")
    book.note_stored("t")
    book.conclude("t", "unknown")
    assert book.answer("t") is None


def test_the_oldest_make_room() -> None:
    book = TransactionBook(concluded_max=2)
    for transaction_id in ("1", "2", "3"):
        book.begin(transaction_id)
        book.conclude(transaction_id, "commit")

    assert [book.answer(transaction_id) for transaction_id in ("1", "2", "3")] == [
        None,
        "commit",
        "commit",
    ]
