"""Failures of tables: a person looks at refusals, and a scheduler repeats the rest."""

from __future__ import annotations

import pytest

from eruca.exporting.errors import UnavailableError
from eruca.tables.batches import TableError
from eruca.tables.failures import failure_of, opening_failure_of

OUTAGE = "Generic S3 error: Error performing PUT {} in {}, after 10 retries: error sending request"
CREDENTIALS, FILE_RIGHTS = "check the credentials", "allow this user to read and write there"


@pytest.mark.parametrize(
    ("url", "elapsed"),
    [
        ("http://127.0.0.1:9000/lake/tenants/403/part-0.parquet", "12.5ms"),
        ("http://127.0.0.1:9000/lake/Forbidden/AccessDenied.parquet", "12.5ms"),
        ("http://127.0.0.1:9000/lake/part-0.parquet", "403.1ms"),
        ("http://127.0.0.1:9000/lake/part-0.parquet", "401 ms"),
    ],
)
def test_an_outage_is_no_refusal_whatever_its_address_and_duration_are(
    url: str, elapsed: str
) -> None:
    error = OSError(OUTAGE.format(url, elapsed))

    assert isinstance(failure_of("orders", error), UnavailableError)
    assert isinstance(opening_failure_of("delta:s3://lake/orders", error), UnavailableError)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("Error performing GET http://h/x in 1ms - Server returned 403 Forbidden", CREDENTIALS),
        ("Client error with status 401 Unauthorized: no body", CREDENTIALS),
        ("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation", CREDENTIALS),
        ("Cannot open file, access denied: s3://lake/orders/x.json", CREDENTIALS),
        ("[Errno 13] Permission denied: '/data/orders'", FILE_RIGHTS),
        ("Cannot open file, access denied: file:///data/orders/x.json", FILE_RIGHTS),
    ],
)
def test_a_refusal_is_a_fault_with_the_fix_of_its_storage(text: str, fix: str) -> None:
    error = PermissionError(text) if fix is FILE_RIGHTS or "denied" in text else OSError(text)

    failure = failure_of("orders", error)

    assert isinstance(failure, TableError)
    assert fix in str(failure)


def test_a_number_in_an_address_makes_no_fault_an_outage() -> None:
    error = ValueError("unknown option 'x' of s3://lake/tenants/503/orders")

    assert isinstance(opening_failure_of("orders", error), TableError)
