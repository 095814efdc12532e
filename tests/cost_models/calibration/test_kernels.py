"""Terms of a device from measured kernels: those that the data determine come back, the others are named."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cost_models.calibration import kernel_tables
from cost_models.calibration.files import device_file
from cost_models.calibration.kernels import (
    COLUMNS,
    Calibration,
    calibrate,
    device_coefficients_of,
)
from cost_models.calibration.lookups import hottest_share
from cost_models.coefficients import device_coefficients, software_coefficients
from topologies.errors import InputError

SECTOR = 32.0
RATE, LAUNCH, ROW, REACH, SPEEDUP = 1.5e12, 8e-6, 5e-11, 64e6, 4.0
PASSES, UPDATE_LAUNCH = 3.0, 4e-5
ROW_PASSES = software_coefficients("torchrec").row_update_passes.value


def lookups(noise: float = 0.0) -> pd.DataFrame:
    """Lookups and updates of a device with known terms, by dim, rows, pooling and number."""
    random = np.random.default_rng(7)
    rows = []
    for dim in (4, 16, 64, 256):
        for table in (20_000, 300_000, 5_000_000):
            for count, pooling in ((512, 1), (200_000, 10), (1_000_000, 20)):
                width = max(dim * 4, SECTOR)
                held = 1 / np.sqrt(1 + (table * width / REACH) ** 2)
                read = count * width * (1 - held + held / SPEEDUP) / RATE
                streamed = (count * 8 + count / pooling * dim * 4) / RATE
                case = {"lookups": count, "dim": dim, "rows": table, "pooling": pooling, "dtype": "fp32"}
                factor = np.exp(noise * random.standard_normal(2))
                rows.append(
                    {"operation": "lookup", "seconds": (LAUNCH + count * ROW + streamed + read) * factor[0], **case}
                )
                distinct = -table * np.expm1(-count / table) / count
                update = UPDATE_LAUNCH + (PASSES + ROW_PASSES * distinct) * read
                rows.append({"operation": "update", "seconds": update * factor[1], **case})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def products() -> pd.DataFrame:
    """Two data types at 20 and 150 TFLOP/s, copies at 25 GB/s, a stream at 1.3 TB/s."""
    rows = [
        {"operation": "matmul", "dtype": dtype, "m": n, "n": n, "k": n, "seconds": 5e-6 + 2 * n**3 / rate}
        for dtype, rate in (("fp32", 20e12), ("bf16", 150e12))
        for n in (256, 1024, 2048, 4096)
    ]
    for operation, rate in (("copy", 25e9), ("stream", 1.3e12)):
        rows += [
            {"operation": operation, "dtype": "fp32", "bytes": 2.0**n, "seconds": 7e-6 + 2.0**n / rate}
            for n in (12, 22, 26, 30)
        ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_dense_updates_and_ids_by_holder() -> None:
    """A rate of whole gradients and a time of an id; a device that was not measured so has neither."""
    rows = [
        {"operation": "dense_update", "dtype": "fp32", "bytes": 2.0**n, "seconds": 1e-5 + 2.0**n / 2e9}
        for n in (12, 20, 24, 28)
    ]
    rows += [
        {"operation": "id_cut", "dtype": "fp32", "lookups": n, "seconds": 4e-6 + n * 1.5e-8}
        for n in (1e3, 1e4, 1e5, 1e6)
    ]
    found = calibrate(pd.DataFrame(rows, columns=list(COLUMNS)), "test", SECTOR)
    assert values(found)["dense_update_bytes_per_s"] == pytest.approx(2e9, rel=0.01)
    assert values(found)["id_cut_s"] == pytest.approx(1.5e-8, rel=0.01)
    base = device_coefficients("default")
    assert base.dense_update_bytes_per_s is None
    assert base.id_cut_s is None
    held = device_coefficients_of(found, "mine", "test", base)
    assert held.id_cut_s is not None
    assert held.id_cut_s.value == pytest.approx(1.5e-8, rel=0.01)


def test_pieces_of_vectors_are_told_from_their_bytes() -> None:
    """A rate, and a time of each piece; a table that does not say how many pieces there were has a rate alone."""
    rows = [
        {"operation": "regroup", "dtype": "fp32", "bytes": 4.0 * n * width, "pieces": n}
        for n in (2048, 20_480, 245_760)
        for width in (4, 16, 64)
    ]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame["seconds"] = 1e-4 + frame.bytes / 6e9 + frame.pieces * 8e-9
    found = calibrate(frame, "test", SECTOR)
    assert values(found)["regroup_piece_s"] == pytest.approx(8e-9, rel=0.02)
    assert values(found)["regroup_bytes_per_s"] == pytest.approx(6e9, rel=0.02)
    base = device_coefficients("default")
    assert base.regroup_piece_s is None
    held = device_coefficients_of(found, "mine", "test", base)
    assert held.regroup_piece_s is not None
    assert held.regroup_piece_s.value == pytest.approx(8e-9, rel=0.02)
    assert "regroup_piece_s" not in values(calibrate(frame.assign(pieces=None), "test", SECTOR))


def test_an_update_may_take_its_time_for_lookups_alone() -> None:
    """On processors a lookup costs what it costs at any width; its row reads are 0 then, not those of the software."""
    rows = lookups()
    update = rows.operation == "update"
    rows.loc[update, "seconds"] = 3e-5 + 2e-7 * rows.lookups[update]
    found = calibrate(rows, "test", SECTOR)
    assert values(found)["update_row_s"] == pytest.approx(2e-7, rel=0.05)
    assert "update_passes_per_lookup" not in values(found)
    held = device_coefficients_of(found, "mine", "test", device_coefficients("default"))
    assert held.update_passes_per_lookup is not None
    assert held.update_passes_per_lookup.value == 0


def values(found: Calibration) -> dict[str, float]:
    return {f"{term.name} {term.dtype}".strip(): term.value for term in found.terms}


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 0.01), (0.05, 0.25)])
def test_known_terms_come_back(noise: float, tolerance: float) -> None:
    """Launch, rate, what short rows waste, the cache, passes of an update: exactly, or as well as noise allows."""
    found = values(calibrate(lookups(noise), "test", SECTOR))
    assert found["lookup_bytes_per_s"] == pytest.approx(RATE, rel=tolerance)
    assert found["lookup_launch_s"] == pytest.approx(LAUNCH, rel=tolerance)
    assert found["l2_reach_bytes"] == pytest.approx(REACH, rel=2 * tolerance)
    assert found["update_passes_per_lookup"] == pytest.approx(PASSES, rel=tolerance)
    if not noise:
        assert found["lookup_row_s"] == pytest.approx(ROW, rel=0.05)
        assert found["l2_speedup"] == pytest.approx(SPEEDUP, rel=0.05)


def test_products_copies_and_streams() -> None:
    """One rate for each data type; a plan's device takes them instead of shares of its data sheet."""
    found = calibrate(products(), "test", SECTOR)
    assert values(found)["matmul_flops_per_s fp32"] == pytest.approx(20e12, rel=0.01)
    device = device_coefficients_of(found, "MINE", "test", device_coefficients("default"))
    assert device.matmul_flops_per_s is not None
    assert device.matmul_flops_per_s.by_dtype == {"bf16": pytest.approx(150e12), "fp32": pytest.approx(20e12)}
    assert device.copy_bytes_per_s is not None
    assert device.copy_bytes_per_s.value == pytest.approx(25e9)
    assert device.lookup_bytes_per_s is None


def test_what_the_data_leave_open_is_named_not_invented() -> None:
    """One width, number and table: neither a launch nor a row nor a cache can be told apart from the rate."""
    rows = lookups()
    rows = rows[
        (rows.operation == "lookup") & (rows.dim == 64) & (rows.rows == 5_000_000) & (rows.lookups == 1_000_000)
    ]
    found = calibrate(pd.concat([rows] * 3), "test", SECTOR)
    assert set(values(found)) == {"lookup_bytes_per_s"}
    assert any("lookup_row_s" in words for words in found.left_open)
    device = device_coefficients_of(found, "MINE", "test", device_coefficients("default"))
    assert device.l2_reach_bytes is not None
    assert device.l2_reach_bytes.value == 0
    assert "no cache shows" in device.l2_reach_bytes.source


def test_a_kind_whose_main_term_is_open_is_refused() -> None:
    """Updates without lookups have no unit to count in; so has noise."""
    rows = lookups()
    with pytest.raises(InputError, match="update_passes_per_lookup"):
        calibrate(rows[rows.operation == "update"], "test", SECTOR)
    random = np.random.default_rng(1)
    wild = products()
    wild = wild[wild.operation == "copy"].assign(seconds=np.exp(8 * random.standard_normal(4)))
    with pytest.raises(InputError, match="copy_bytes_per_s"):
        calibrate(wild, "test", SECTOR)


def test_the_hottest_rows_of_a_power_law() -> None:
    """As the sum over ranks; of uniform reads the fraction itself."""
    weight = np.arange(1.0, 10_001) ** -1.05
    exact = weight[:500].sum() / weight.sum()
    one = np.ones(1)
    assert hottest_share(10_000 * one, 1.05 * one, 0.05 * one)[0] == pytest.approx(exact, rel=0.02)
    assert hottest_share(10_000 * one, 0 * one, 0.05 * one)[0] == pytest.approx(0.05)


def test_a_device_file_is_what_plans_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written, put where PLANNER_COEFFICIENTS says, and read under the device's name beside the default's."""
    from cost_models import coefficients

    made = device_coefficients_of(
        calibrate(pd.concat([lookups(), products()]), "test", SECTOR), "MINE", "test", device_coefficients("default")
    )
    (tmp_path / "any.yaml").write_text(device_file(made))
    monkeypatch.setenv("PLANNER_COEFFICIENTS", str(tmp_path))
    coefficients.forget()
    try:
        read = device_coefficients("MINE")
        assert read == made
        assert device_coefficients("L40").name == "default"
        assert coefficients.collective_files()
    finally:
        monkeypatch.undo()
        coefficients.forget()


def test_tables_of_benchmarks_in_their_own_words(tmp_path: Path) -> None:
    """Passes, milliseconds, batch times tables; other placements and passes are left out."""
    path = tmp_path / "kernels.csv"
    path.write_text(
        "impl,pass,placement,batch,num_tables,rows_per_table,dim,pooling,time_ms\n"
        "tbe,forward,hbm,1024,2,1000,64,10,0.5\n"
        "tbe,backward,hbm,1024,2,1000,64,none,1.5\n"
        "tbe,train,hbm,1024,2,1000,64,10,2.0\n"
        "tbe,forward,uvm,1024,2,1000,64,10,9.0\n"
        "other,forward,hbm,1024,2,1000,64,10,3.0\n"
    )
    rows = kernel_tables.read_csv(path, {"impl": "tbe"})
    assert rows.operation.tolist() == ["lookup", "update"]
    assert rows.lookups.tolist() == [20480, 2048]
    assert rows.rows.tolist() == [2000, 2000]
    assert rows.seconds.tolist() == [5e-4, 1.5e-3]


def test_every_fault_of_a_table_is_named(tmp_path: Path) -> None:
    """With its line; a missing width with the reason why it matters; rows chosen by a column that there is not."""
    path = tmp_path / "kernels.csv"
    path.write_text("operation,lookups,dim,dtype,seconds\nlookup,100,64,fp99,1e-5\nlookup,-1,64,fp32,0\n")
    with pytest.raises(InputError) as raised:
        kernel_tables.read_csv(path)
    assert len(raised.value.faults) == 3
    assert ":3:" in str(raised.value)
    path.write_text(
        "kernel,dur_us,weights_numel,T,indices,B\nsplit_embedding_codegen_forward_unweighted,31,96000,1,56896,8192\nsplit_embedding_codegen_forward_weighted,16,64,1,0,8192\n"
    )
    with pytest.raises(InputError, match="width of a row: add a column dim"):
        kernel_tables.read_csv(path)
    with pytest.raises(InputError, match="has no column 'gpu'"):
        kernel_tables.read_csv(path, {"gpu": "x"})
    with pytest.raises(InputError, match="where T=2"):
        kernel_tables.read_csv(path, {"T": "2"})


def test_products_on_matrix_units_are_read_as_they_are_measured(tmp_path: Path) -> None:
    """In tf32, in which nothing is stored: of products alone, never of rows."""
    path = tmp_path / "measured.csv"
    path.write_text("operation,dtype,m,n,k,seconds\nmatmul,tf32,64,64,64,1e-5\n")
    assert list(kernel_tables.read_csv(path).dtype) == ["tf32"]
    path.write_text("operation,dtype,lookups,dim,seconds\nlookup,tf32,64,64,1e-5\n")
    with pytest.raises(InputError, match="is 'tf32'"):
        kernel_tables.read_csv(path)
