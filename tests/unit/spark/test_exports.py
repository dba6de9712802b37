"""Ranges read from a service that breaks off, lies, or is away: every row once, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eruca.exporting.errors import DamagedError, DataLossError, SourceError, UnavailableError
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca.exporting.positions import Lost, Position
from eruca.exporting.ranges import Held, LogEnd, Queue, Range
from support.export_service import (
    TOPIC_ID,
    ExportService,
    Fault,
    Refusal,
    serving_exports,
)

FIRST, SECOND = Queue("orders", "broker-a", 0), Queue("orders", "broker-a", 1)
HELD = Held(0, 500, 0, 500, TOPIC_ID, "2026-11-21T00:00:00.000Z", "2026-11-21T00:00:00.499Z")
WANTED = [Range(FIRST, 50, 450), Range(SECOND, 0, 250)]


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService().hold("orders", {0: 500, 1: 250})) as served:
        yield served


def exports_of(service: ExportService, **options: str) -> Exports:
    given = {"url": service.url, "topic": "orders", "retrySeconds": "5", **options}
    return Exports(Options.parse(given))


def read(exports: Exports, ranges: list[Range] = WANTED) -> list[tuple[int, int]]:
    """Return queue and offset of every row."""
    rows: list[tuple[int, int]] = []
    for batch in exports.read(ranges):
        columns = batch.column("queue_id").to_pylist(), batch.column("queue_offset").to_pylist()
        rows.extend(zip(*columns, strict=True))
    return rows


def rows_of(ranges: list[Range]) -> list[tuple[int, int]]:
    return [(one.queue.queue_id, offset) for one in ranges for offset in range(one.start, one.end)]


def asked(service: ExportService) -> list[str]:
    return [path for path in service.requests if "/records" in path]


def test_a_damaged_message_ends_the_reading_with_an_error_that_says_how_to_go_on(
    service: ExportService,
) -> None:
    service.damaged = {(FIRST, 170)}
    batches = exports_of(service).read(WANTED)

    first, second = next(batches), next(batches)
    with pytest.raises(DamagedError, match=r"message-damaged: .*damaged=mark"):
        next(batches)

    assert (first.num_rows, second.num_rows) == (100, 20)


def test_a_damaged_message_that_is_to_be_marked_has_a_row_and_is_told(
    service: ExportService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.damaged = {(FIRST, 170), (SECOND, 0)}

    batches = [*exports_of(service, damaged="mark").read(WANTED)]

    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["queue_id"], row["queue_offset"]) for row in rows] == rows_of(WANTED)
    marked = [row for row in rows if row["damage"] is not None]
    assert [(row["queue_id"], row["queue_offset"], row["body"]) for row in marked] == [
        (0, 170, None),
        (1, 0, None),
    ]
    told = capsys.readouterr().err
    assert "orders/broker-a/0: the message at offset 170 is damaged" in told
    assert "orders/broker-a/1: the message at offset 0 is damaged" in told


def test_ranges_are_read_in_order_with_one_request(service: ExportService) -> None:
    assert read(exports_of(service)) == rows_of(WANTED)
    assert len(asked(service)) == 1


@pytest.mark.parametrize("is_in_batch", [False, True])
@pytest.mark.parametrize("batches", [0, 1, 3, 5])
def test_a_stream_that_breaks_off_is_resumed_at_the_next_row(
    service: ExportService, batches: int, *, is_in_batch: bool
) -> None:
    service.faults.append(Fault(cut_after_batches=batches, cut_in_batch=is_in_batch))

    assert read(exports_of(service)) == rows_of(WANTED)
    assert len(asked(service)) == 2


def test_a_topic_that_was_created_again_is_no_continuation(service: ExportService) -> None:
    """It has as many messages as the one that was planned; none of them may be read for its."""
    held = exports_of(service).held(["orders"])
    planned = [one._replace(topic_id=held[one.queue].topic_id) for one in WANTED]
    service.create_again("orders", {0: 500, 1: 250})

    told = (
        "orders/broker-a/0: messages 50 to 449 .* with their topic, before they were read; "
        "to continue with the present messages"
    )
    with pytest.raises(DataLossError, match=told):
        read(exports_of(service), planned)
    assert read(exports_of(service, failOnDataLoss="false"), planned) == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_created_again_while_it_is_read_is_an_error_in_any_case(
    service: ExportService, fails: str
) -> None:
    """Some rows may be of the other topic by then; the reader must drop them."""
    planned = [one._replace(topic_id=TOPIC_ID) for one in WANTED]
    service.faults.append(Fault(cut_after_batches=2))
    answers = []

    def create_again_at_the_second() -> None:
        answers.append(1)
        if len(answers) == 2:
            service.create_again("orders", {0: 500, 1: 250})

    service.on_records = create_again_at_the_second

    with pytest.raises(DataLossError, match=r"created again .* while it was being read"):
        read(exports_of(service, failOnDataLoss=fails), planned)


def test_positions_are_proved_by_the_service(service: ExportService) -> None:
    service.lost[SECOND] = ("the log was restored from an older copy", 17)
    position = Position(20, TOPIC_ID, "2026-11-21T00:00:00.000Z", "2026-11-21T00:00:00.019Z")

    lost = exports_of(service).lost({FIRST: position, SECOND: position})

    assert lost == {SECOND: Lost("the log was restored from an older copy", 17)}
    assert exports_of(service).lost({}) == {}


def test_a_stream_that_breaks_off_again_and_again_is_read_to_its_end(
    service: ExportService,
) -> None:
    service.faults.extend(Fault(cut_after_batches=1) for _ in range(6))

    assert read(exports_of(service)) == rows_of(WANTED)


def test_an_answer_that_ends_too_early_is_asked_for_the_rest(service: ExportService) -> None:
    service.faults.append(Fault(end_after_batches=2))

    assert read(exports_of(service)) == rows_of(WANTED)
    assert "range=broker-a%2F0%3A250-450" in asked(service)[1]


def test_answers_that_always_end_too_early_are_an_error_in_the_end(service: ExportService) -> None:
    service.faults.extend(Fault(end_after_batches=0) for _ in range(99))

    with pytest.raises(UnavailableError, match=r"no progress for 0.5 s.*ended before"):
        read(exports_of(service, retrySeconds="0.5"))


@pytest.mark.parametrize(
    "refusal",
    [Refusal(429, "overloaded", 0), Refusal(503, "not-ready"), Refusal(500, "internal")],
)
def test_a_refusal_that_may_pass_is_waited_for(service: ExportService, refusal: Refusal) -> None:
    service.faults.extend([Fault(refusal), Fault(refusal)])

    assert read(exports_of(service)) == rows_of(WANTED)


def test_a_refusal_that_will_not_pass_is_an_error_at_once(service: ExportService) -> None:
    service.faults.append(Fault(Refusal(400, "validation-failed")))

    with pytest.raises(SourceError, match=r"400: validation-failed: as told"):
        read(exports_of(service))
    assert len(asked(service)) == 1


@pytest.mark.parametrize("fault", [Fault(shift=1), Fault(shift=-1), Fault(repeat_first=True)])
def test_a_gap_or_a_repetition_is_an_error(service: ExportService, fault: Fault) -> None:
    service.faults.append(fault)

    with pytest.raises(SourceError, match="expected rows of"):
        read(exports_of(service))


def test_rows_that_are_gone_are_an_error(service: ExportService) -> None:
    service.queues[FIRST] = (100, 500)

    with pytest.raises(DataLossError, match=r"messages 50 to 99 .* failOnDataLoss=false"):
        read(exports_of(service))


def test_rows_that_are_gone_are_passed_over_if_that_is_allowed(
    service: ExportService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.queues[FIRST] = (100, 500)
    service.queues[SECOND] = (250, 250)

    assert read(exports_of(service, failOnDataLoss="false")) == rows_of([Range(FIRST, 100, 450)])
    assert "messages 50 to 99" in capsys.readouterr().err


def test_rows_deleted_while_they_are_read_are_noticed(service: ExportService) -> None:
    service.faults.append(Fault(cut_after_batches=1))

    def delete() -> None:
        if len(asked(service)) == 2:
            service.queues[FIRST] = (200, 500)

    service.on_records = delete
    with pytest.raises(DataLossError, match="messages 150 to 199"):
        read(exports_of(service))


def test_a_topic_that_a_name_server_does_not_know_yet_is_waited_for(
    service: ExportService,
) -> None:
    service.faults.extend([Fault(Refusal(404, "topic-not-found"))] * 2)

    assert read(exports_of(service, failOnDataLoss="false")) == rows_of(WANTED)


@pytest.mark.parametrize(
    "queues",
    [
        pytest.param({}, id="deleted"),
        pytest.param({FIRST: (0, 0), SECOND: (0, 0)}, id="created again"),
        pytest.param({FIRST: (0, 40)}, id="created again with fewer queues"),
    ],
)
def test_rows_that_are_gone_with_their_topic_are_passed_over_if_that_is_allowed(
    service: ExportService,
    capsys: pytest.CaptureFixture[str],
    queues: dict[Queue, tuple[int, int]],
) -> None:
    service.queues = queues

    with pytest.raises(DataLossError, match=r"messages 50 to 449 .* with their topic"):
        read(exports_of(service, retrySeconds="0.5"))
    assert read(exports_of(service, retrySeconds="0.5", failOnDataLoss="false")) == []
    told = capsys.readouterr().err
    assert "orders/broker-a/0: messages 50 to 449" in told
    assert "orders/broker-a/1: messages 0 to 249" in told


def test_what_there_is_of_a_range_is_read_where_its_end_is_gone_if_that_is_allowed(
    service: ExportService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.queues[FIRST] = (100, 300)

    with pytest.raises(DataLossError, match="messages 50 to 99"):
        read(exports_of(service))
    rows = read(exports_of(service, failOnDataLoss="false"))

    assert rows == rows_of([Range(FIRST, 100, 300), WANTED[1]])
    told = capsys.readouterr().err
    assert "orders/broker-a/0: messages 50 to 99" in told
    assert "orders/broker-a/0: messages 300 to 449" in told


def test_a_range_of_a_broker_that_is_away_is_not_taken_for_deleted(service: ExportService) -> None:
    service.queues[FIRST] = (100, 500)
    elsewhere = Queue("orders", "broker-b", 0)

    with pytest.raises(SourceError, match="queue-not-found"):
        read(
            exports_of(service, failOnDataLoss="false"),
            [Range(FIRST, 50, 450), Range(elsewhere, 0, 10)],
        )


def test_a_plan_that_lacks_a_broker_is_asked_for_again_until_it_is_there(
    service: ExportService,
) -> None:
    service.away = ["broker-b"]

    def come_back() -> None:
        if len(service.requests) == 2:
            service.away = []

    service.on_plan = come_back
    assert exports_of(service).held(["orders"])[FIRST] == HELD
    assert not service.away


def test_a_plan_that_goes_on_lacking_a_broker_is_an_error_unless_loss_is_allowed(
    service: ExportService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.away = ["broker-b"]

    with pytest.raises(UnavailableError, match=r"broker-b: .* failOnDataLoss=false"):
        exports_of(service, retrySeconds="0.5").held(["orders"])
    held = exports_of(service, failOnDataLoss="false").held(["orders"])
    assert set(held) == {FIRST, SECOND}
    assert "broker-b" in capsys.readouterr().err


def test_a_report_names_the_brokers_that_are_away(service: ExportService) -> None:
    exports = exports_of(service, failOnDataLoss="false")
    assert exports.away(["orders"]) == []

    service.away = ["broker-b"]

    [text] = exports.away(["orders"])
    assert text.startswith("orders: broker-b: ")

    service.away = [None]  # nobody knows of any
    assert exports.away(["orders"]) == ["orders: nobody knows it"]


def test_a_service_that_is_away_is_replaced_by_another(service: ExportService) -> None:
    urls = f"http://127.0.0.1:9;{service.url}"

    assert read(exports_of(service, url=urls)) == rows_of(WANTED)


def test_a_service_that_stays_away_is_an_error_in_the_end() -> None:
    exports = Exports(
        Options.parse({"url": "http://127.0.0.1:9", "topic": "orders", "retrySeconds": "0.5"})
    )

    with pytest.raises(UnavailableError, match="ConnectionRefusedError"):
        exports.held(["orders"])


def test_a_plan_is_asked_for_again_where_that_may_help(service: ExportService) -> None:
    service.plan_faults.extend([Refusal(503, "broker-unreachable", 0)] * 2)

    assert exports_of(service).held(["orders"])[FIRST] == HELD


def test_only_the_columns_wanted_are_asked_for_and_checked_all_the_same(
    service: ExportService,
) -> None:
    exports = exports_of(service, columns="tag,body")
    batches = list(exports.read(WANTED))

    assert [batch.schema.names for batch in batches] == [["tag", "body"]] * len(batches)
    assert sum(batch.num_rows for batch in batches) == 650
    service.faults.append(Fault(repeat_first=True))
    with pytest.raises(SourceError, match="expected rows of"):
        list(exports.read(WANTED))


def test_a_service_of_an_earlier_schema_is_refused(
    service: ExportService, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = service.plan("orders", {})

    def older(*_: Any) -> dict[str, Any]:  # noqa: ANN401
        return {**plan, "schema_version": 0}

    monkeypatch.setattr(ExportService, "plan", older)
    with pytest.raises(SourceError, match="update the service"):
        exports_of(service).held(["orders"])


def test_leaving_a_stream_closes_its_connection(service: ExportService) -> None:
    reading = exports_of(service).read(WANTED)
    next(reading)
    reading.close()  # type: ignore[attr-defined]

    assert read(exports_of(service)) == rows_of(WANTED)


def test_the_log_end_of_several_topics_is_the_one_that_all_plans_reach(
    service: ExportService,
) -> None:
    """A message of the first topic that is stored between two plans is in neither."""
    service.hold("bills", {0: 5}).hold("refunds", {0: 5}, broker_name="broker-b")
    ends = iter([(7, 1_000), (8, 2_000), (8, 3_000)])

    def grow() -> None:
        service.epoch, service.log_offset = next(ends)

    service.on_plan = grow
    exports = exports_of(service, topic="orders,bills,refunds")
    exports.held(["orders", "bills", "refunds"])

    assert exports.logs == {"broker-a": LogEnd(7, 1_000), "broker-b": LogEnd(8, 3_000)}


def test_a_log_end_that_one_plan_lacks_is_unknown(service: ExportService) -> None:
    """The plan may lack the broker itself, which the next plan has again."""
    service.hold("bills", {0: 5}).hold("bills", {0: 5}, broker_name="broker-b")
    answers = iter([(None, ["broker-b"]), (1_000, [])])

    def change() -> None:
        service.log_offset, service.away = next(answers)

    service.on_plan = change
    exports = exports_of(service, topic="orders,bills", failOnDataLoss="false")
    exports.held(["orders", "bills"])

    assert exports.logs == dict.fromkeys(("broker-a", "broker-b"), LogEnd(None, None))
