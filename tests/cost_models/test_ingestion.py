"""What samples need on their way from storage: RecD's published factors, and figures by hand."""

import pytest
from pydantic import ValidationError

from cost_models.ingestion import ingestion_needs
from cost_models.tables import Tables
from tests.oracles.instances import workload

TABLE = {"rows": 10**6, "dim": 64, "pooling_factor": 100}
SESSIONS = {"samples_per_session": 16.5, "duplicate_share": (1 - 1 / 3.71) * 16.5 / 15.5}
READERS = {"stored_bytes_per_sample": "2kB", "reader_samples_per_s": 5000.0, "readers": 100}


def test_storage_and_readers_gain_what_recd_published() -> None:
    """Sessions of 16.5 samples of which storage shrinks 3.71 x: readers are 1.79 x as fast, 1 %."""
    plain, recd = (
        ingestion_needs(workload([{**TABLE, **sessions}], ingestion=READERS), 1e6) for sessions in ({}, SESSIONS)
    )
    assert plain is not None
    assert recd is not None
    assert plain.storage_bytes_per_s == 2e9
    assert plain.storage_bytes_per_s / (recd.storage_bytes_per_s or 0) == pytest.approx(3.71)
    assert (recd.reader_samples_per_s or 0) / 5000 == pytest.approx(1.79, rel=0.01)
    assert (plain.readers, recd.readers) == (200, 113)
    assert plain.sustained_samples_per_s == 500_000


def test_duplicates_are_left_out_before_they_are_sent() -> None:
    """Of S samples of a session, a share d of ids repeats: 1 - d (S-1)/S of them are sent, copied and looked up."""
    model = workload([{**TABLE, "samples_per_session": 4, "duplicate_share": 0.8}], ingestion=READERS)
    tables = Tables.of(model, 1)
    assert tables.lookups_per_sample == pytest.approx([40.0])
    assert tables.ids_per_sample == pytest.approx([40.0])
    needs = ingestion_needs(model, 1000.0)
    assert needs is not None
    assert needs.sent_bytes_per_s == pytest.approx(1000 * (40 * 8 + 4 + 4))  # ids, a length, the label


def test_what_is_not_said_is_not_known() -> None:
    """Without storage or readers there is no figure of theirs; a number of readers goes with their rate."""
    assert ingestion_needs(workload([TABLE]), 1e6) is None
    needs = ingestion_needs(workload([TABLE], ingestion={"stored_bytes_per_sample": "2kB"}), 1e6)
    assert needs is not None
    assert (needs.readers, needs.storage_bytes_per_s) == (None, 2e9)
    with pytest.raises(ValidationError, match="goes with reader_samples_per_s"):
        workload([TABLE], ingestion={"readers": 4})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples_per_session": 4}, "goes with duplicate_share"),
        ({"duplicate_share": 0.5}, "goes with samples_per_session"),
        ({"samples_per_session": 4, "duplicate_share": 0.5, "dedup_factor": 2}, "say what repeats once"),
    ],
)
def test_duplicates_are_told_once_and_whole(fields: dict[str, float], message: str) -> None:
    """By a factor, or by sessions and a share."""
    with pytest.raises(ValidationError, match=message):
        workload([{**TABLE, **fields}])
