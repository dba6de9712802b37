"""Sessions: counted from when a heartbeat was sent, so that the member gives up first."""

from __future__ import annotations

from eruca.core.consuming.session import Session


def test_a_session_that_never_began_is_over() -> None:
    session = Session(30.0)

    assert not session.is_begun
    assert session.is_over(0.0)


def test_it_lasts_from_when_the_heartbeat_was_sent() -> None:
    session = Session(30.0)
    session.renew(100.0, 10.0)

    assert session.is_begun
    assert not session.is_over(110.0)
    assert session.is_over(110.001)
    assert (session.expires_at, session.age(104.0)) == (110.0, 4.0)


def test_an_answer_that_was_overtaken_takes_nothing_back() -> None:
    session = Session(10.0)
    session.renew(105.0, 10.0)
    session.renew(100.0, 10.0)

    assert session.expires_at == 115.0


def test_an_ended_session_starts_over() -> None:
    session = Session(10.0)
    session.renew(100.0, 10.0)
    session.end()
    assert session.is_over(100.0)

    session.renew(101.0, 10.0)
    assert not session.is_over(111.0)
