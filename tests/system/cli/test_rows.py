"""Messages from the command line: of arguments, lines and CSV; a bad row is named."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from support.command_line import STOPS, Eruca
from support.patience import PATIENCE_SECONDS

FLIGHTS = "carrier,flight,tail\nUA,1545,N14228\nAA,1141,N619AA\nUA,1714,N24211\n"


def test_one_message_can_be_sent_again_under_its_key_and_is_stored_once(eruca: Eruca) -> None:
    eruca("topic", "create", "t-once")
    send = ("send", "--topic=t-once", "--idempotency-key=mail-17")

    [first], [again] = (eruca.json(*send, "hello") for _ in range(2))

    assert (first.pop("replayed"), again.pop("replayed")) == (False, True)
    assert first == again
    assert first["message_id"] == "mail-17"
    assert "differs in its body" in eruca(*send, "another", code=1).output
    eruca(*send, "two", "messages", code=2)
    eruca("send", "--topic=t-once", "--idempotency-key=two words", "x", code=1)


def test_messages_from_arguments_are_stored_with_tag_keys_and_properties(eruca: Eruca) -> None:
    eruca("topic", "create", "t-args")
    options = ["--tag=paid", "--key=17", "--key=x", "--sharding-key=a", "--property=from=cli"]

    receipts = eruca.json("send", "--topic=t-args", "order 17", "order 18", *options)

    assert [receipt["queue_offset"] for receipt in receipts] == [0, 1]
    in_words = eruca("message", "show", receipts[0]["offset_message_id"]).stdout
    assert re.search(rf"^message id +{receipts[0]['message_id']}$", in_words, re.MULTILINE)
    assert re.search(r"^retries +0$", in_words, re.MULTILINE)
    assert "_" not in eruca("send", "--topic=t-args", "order 19").stdout
    shown = eruca.json("message", "show", receipts[0]["offset_message_id"])
    assert shown["body"] == {"text": "order 17"}
    assert (shown["tag"], shown["keys"], shown["sharding_key"]) == ("paid", ["17", "x"], "a")
    assert shown["properties"] == {"from": "cli"}
    by_id = eruca.json("message", "show", receipts[1]["message_id"], "--topic=t-args")
    assert by_id["body"] == {"text": "order 18"}
    found = eruca.json("message", "find", "--topic=t-args", "--key=x")
    assert sorted(message["body"]["text"] for message in found) == ["order 17", "order 18"]


def test_a_message_that_is_nowhere_is_one_clear_line(eruca: Eruca) -> None:
    eruca("topic", "create", "t-ids")
    unique_id = "C0000202" + "1F03" + "1A2071B4" + "0AAC2000" + "0001"
    other_host = "7F" + "0" * 12 + "01" + "0" * 16  # port 1: an offset id as any other

    unplaced = eruca("message", "show", unique_id, code=1)
    missing = eruca("message", "show", other_host, code=1)
    elsewhere = eruca("message", "show", "order-17", "--topic=t-ids", code=1)
    zeros = eruca("message", "show", "0" * 32, "--topic=t-ids", code=1)
    wrong = eruca("message", "show", "xyz", code=1)

    assert f"{unique_id} is a unique id" in unplaced.stderr
    assert "store host 127.0.0.0:1 " in missing.stderr
    for said in (unplaced, missing, wrong):
        assert "for a unique id give --topic, or use eruca query id" in said.stderr
    assert "t-ids has no message with the id order-17" in elsewhere.stderr
    assert "t-ids has no message with the id 000" in zeros.stderr
    assert "expected an offset id of 32 hex digits" in wrong.stderr


def test_each_line_of_stdin_is_a_message(eruca: Eruca) -> None:
    eruca("topic", "create", "t-lines")

    said = eruca.piped("one\n\ntwo\nthree", "send", "--topic=t-lines")

    assert said.startswith("3 messages sent to t-lines in ")
    assert sorted(eruca.bodies("t-lines")) == ["one", "three", "two"]


def test_csv_columns_become_tag_key_and_sharding_key(eruca: Eruca, tmp_path: Path) -> None:
    eruca("topic", "create", "t-csv")
    path = tmp_path / "flights.csv"
    path.write_text(FLIGHTS)
    fields = ["--tag-field=carrier", "--key-field=flight", "--sharding-key-field=tail"]

    counts = eruca.json("send", "--topic=t-csv", f"--file={path}", *fields)

    assert (counts["sent"], counts["skipped"]) == (3, 0)
    united = [json.loads(body)["flight"] for body in eruca.bodies("t-csv", "--filter=UA")]
    assert sorted(united) == ["1545", "1714"]
    [found] = eruca.json("message", "find", "--topic=t-csv", "--key=1141")
    assert (found["tag"], found["sharding_key"]) == ("AA", "N619AA")


def test_a_bad_row_is_named_by_its_line_and_ends_it(eruca: Eruca) -> None:
    eruca("topic", "create", "t-bad")

    rows = '{"a":1}\n{bad\n[3]\n'

    said = eruca.piped(rows, "send", "--topic=t-bad", "--format=jsonl", code=1)

    assert "error: line 2: not JSON" in said
    assert eruca.bodies("t-bad") == ['{"a":1}']


def test_bad_rows_may_be_skipped_told_and_counted(eruca: Eruca) -> None:
    eruca("topic", "create", "t-skip")

    options = ["--format=jsonl", "--skip-errors"]

    said = eruca.piped("1\n{bad\n3\n", "send", "--topic=t-skip", *options, code=3)

    assert "skipped: line 2" in said
    assert "2 messages sent to t-skip" in said
    assert sorted(eruca.bodies("t-skip")) == ["1", "3"]


def test_rows_are_sent_to_the_last_though_nobody_reads_what_is_said_of_bad_ones(
    eruca: Eruca,
) -> None:
    eruca("topic", "create", "t-unheard")
    options = ["--format=jsonl", "--skip-errors"]
    with eruca.start("send", "--topic=t-unheard", *options) as sender:
        assert sender.stdin is not None
        assert sender.stderr is not None
        sender.stdin.write("{bad\n")
        sender.stdin.flush()
        assert "skipped: line 1" in sender.stderr.readline()
        sender.stderr.close()
        sender.stdin.write("{bad\n3\n{bad\n5\n")
        sender.stdin.close()

        assert sender.wait(PATIENCE_SECONDS) == 3

    assert sorted(eruca.bodies("t-unheard")) == ["3", "5"]


def test_a_bad_row_is_an_error_though_nobody_reads_the_counts(eruca: Eruca) -> None:
    with eruca.start("send", "--topic=t-uncounted", "--format=jsonl", "-ojson") as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        sender.stdout.close()
        sender.stdin.write("{bad\n")
        sender.stdin.close()

        assert sender.stderr is not None
        assert json.loads(sender.stderr.read())["code"] == "bad-row"

    assert sender.returncode == 1


def test_without_a_header_no_row_is_skipped_for_another(eruca: Eruca) -> None:
    eruca("topic", "create", "t-header")
    options = ["--format=csv", "--skip-errors"]

    said = eruca.piped('"a"x,b\n1,2\n3,4\n', "send", "--topic=t-header", *options, code=1)

    assert "error: line 1: the header: not CSV" in said
    assert eruca.bodies("t-header") == []


def test_what_failed_before_a_bad_row_is_told_and_not_the_bad_row(namesrv_url: str) -> None:
    eruca = Eruca("http://127.0.0.1:1")

    said = eruca.piped("1\n{bad\n", "send", "--topic=t-first", "--format=jsonl", code=1)

    assert "error: line 1: " in said
    assert "0 messages sent to t-first" in said


def test_what_several_rows_failed_with_is_told_with_the_first_ones_line(namesrv_url: str) -> None:
    eruca = Eruca("http://127.0.0.1:1")

    said = eruca.piped("1\n2\n3\n", "send", "--topic=t-shared", code=1)

    assert "error: line 1: no name server answered" in said


def test_a_failure_is_told_while_the_next_row_is_awaited(namesrv_url: str) -> None:
    with Eruca("http://127.0.0.1:1").start("send", "--topic=t-early") as sender:
        assert sender.stdin is not None
        sender.stdin.write("at once\n")
        sender.stdin.flush()

        assert sender.wait(60) == 1


def test_a_line_is_sent_before_the_next_is_written(eruca: Eruca) -> None:
    eruca("topic", "create", "t-slow")
    with (
        eruca.start("tail", "t-slow", "--start=earliest", "--count=1") as tail,
        eruca.start("send", "--topic=t-slow") as sender,
    ):
        assert sender.stdin is not None
        sender.stdin.write("at once\n")
        sender.stdin.flush()

        shown, _ = tail.communicate(timeout=PATIENCE_SECONDS)

        assert shown.rstrip().endswith("at once")
        sender.communicate(timeout=PATIENCE_SECONDS)
    assert (tail.returncode, sender.returncode) == (0, 0)


@STOPS
def test_ctrl_c_while_rows_are_awaited_keeps_what_was_sent(
    eruca: Eruca, stop: signal.Signals, code: int
) -> None:
    topic = f"t-stop-{code}"
    eruca("topic", "create", topic)
    with (
        eruca.start("send", f"--topic={topic}") as sender,
        eruca.start("tail", topic, "--start=earliest", "--count=1") as tail,
    ):
        assert sender.stdin is not None
        sender.stdin.write("before\n")
        sender.stdin.flush()
        tail.communicate(timeout=PATIENCE_SECONDS)

        sender.send_signal(stop)

        assert sender.wait(60) == code
        assert sender.stderr is not None
        assert sender.stderr.read().startswith(f"1 message sent to {topic}")
    assert eruca.bodies(topic) == ["before"]
