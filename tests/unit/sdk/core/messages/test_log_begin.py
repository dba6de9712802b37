"""The beginning of a broker's log, as its readers take it from the status."""

from __future__ import annotations

import pytest

from eruca.contract.errors import UnavailableError
from eruca.contract.fields import BrokerRole
from eruca.core.messages.log_begin import log_begin
from support.broker_statuses import broker_status as status


def test_with_a_tier_the_log_begins_where_the_broker_says() -> None:
    assert log_begin(status(begin_offset=100)) == 100
    assert log_begin(status(begin_offset=200)) == 200


def test_a_broker_that_does_not_report_it_feeds_what_is_on_its_disk() -> None:
    assert log_begin(status()) == 200


def test_while_it_is_unknown_what_the_tier_has_no_beginning_is_taken_for_it() -> None:
    with pytest.raises(UnavailableError, match="does not know yet"):
        log_begin(status(begin_offset=None))


@pytest.mark.parametrize("role", ["standby", "learner"])
def test_another_replica_knows_it_only_if_it_has_all_of_the_log(role: BrokerRole) -> None:
    for begin in ({}, {"begin_offset": 100}):
        with pytest.raises(UnavailableError, match="only the master knows"):
            log_begin(status(broker_id=2, role=role, **begin))

    assert log_begin(status(broker_id=2, role=role, begin_offset=0)) == 0
    assert log_begin(status(broker_id=2, role=role, min_offset=0)) == 0
    with pytest.raises(UnavailableError, match="does not know yet"):
        log_begin(status(broker_id=2, role=role, begin_offset=None))
