"""A file of table profiles is read under our column names; what is wrong with it is said with a position."""

import itertools
import json
import time
from pathlib import Path

import pytest

from cost_models.workload import load_workload, read_profiles
from topologies.errors import InputError

HEADER = "name,rows,dim,pooling_factor\n"


def faults_of(path: Path, text: str | None = None) -> list[str]:
    """What is said about a file of profiles, without its directory."""
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_workload(path, global_batch=64)
    return [str(fault).replace(f"{path.parent}/", "") for fault in caught.value.faults]


@pytest.mark.parametrize(
    "header",
    [
        "name,rows,dim,pooling_factor",
        "table_name,num_embeddings,embedding_dim,pooling_factors",
        "name,num_embeddings_per_feature,embedding_dim,multi_hot_sizes",
        "name,hash_size,dim,avg_pooling",
        "name,max_vocabulary_size,ev_size,hotness",
        "name,vocabulary_size,vec_size,nnz_per_slot",
        "embedding_name,num_buckets,embedding_vec_size,pooling_factor",
    ],
)
def test_other_tools_names_mean_ours(tmp_path: Path, header: str) -> None:
    path = tmp_path / "tables.csv"
    path.write_text(f"{header}\nuser,1000,64,2.5\n")
    (table,) = load_workload(path, global_batch=64).tables
    assert (table.name, table.rows, table.dim, table.pooling_factor) == ("user", 1000, 64, 2.5)


def test_optional_columns_of_csv(tmp_path: Path) -> None:
    """Empty cells are unset; names are joined by |; a curve is written as points."""
    path = tmp_path / "tables.csv"
    path.write_text(
        "name,rows,dim,hotness,features,access_cdf,data_type,is_weighted,zipf_alpha\n"
        "a,4e7,64,3,x|y,0.01:0.5|1:1,torch.float16,true,\n"
        "\n"
        "b,10,64,1,2,,FP32,,1.05\n"
    )
    a, b = load_workload(path, global_batch=64).tables
    assert a.rows == 40_000_000
    assert a.features == ("x", "y")
    assert a.access_cdf == ((0.01, 0.5), (1.0, 1.0))
    assert (a.dtype, a.weighted, a.zipf_alpha) == ("fp16", True, None)
    assert (b.features, b.dtype, b.weighted, b.zipf_alpha) == (2, "fp32", False, 1.05)


def test_csv_parquet_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    import pandas as pd

    rows = [{"name": "a", "rows": 10, "dim": 8, "pooling_factor": 1.5}]
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "csv.csv", index=False)
    frame.to_parquet(tmp_path / "parquet.parquet")
    (tmp_path / "yaml.yaml").write_text("tables:\n- {name: a, rows: 10, dim: 8, pooling_factor: 1.5}\n")
    (tmp_path / "json.json").write_text(json.dumps(rows))
    found = [load_workload(path, global_batch=4).tables for path in sorted(tmp_path.iterdir())]
    assert len(found) == 4
    assert all(tables == found[0] for tables in found)


@pytest.mark.parametrize(
    ("spelling", "rows"),
    [("2000000", 2_000_000), ("2e6", 2_000_000), ("2.0E+6", 2_000_000), ("2_000_000", 2_000_000), ("1.5e1", 15)],
)
def test_counts_are_written_alike_in_every_file(tmp_path: Path, spelling: str, rows: int) -> None:
    """In digits or powers of ten, in CSV and YAML."""
    (tmp_path / "t.csv").write_text(f"name,rows,dim,pooling_factor\na,{spelling},64,1\n")
    (tmp_path / "t.yaml").write_text(f"tables: [{{name: a, rows: {spelling}, dim: 64, pooling_factor: 1}}]\n")
    assert [load_workload(tmp_path / name, global_batch=4).tables[0].rows for name in ("t.csv", "t.yaml")] == [rows] * 2


@pytest.mark.parametrize(
    ("spelling", "remedy"),
    [
        ("20M", "; write 20000000, or 20971520 for Mi"),
        ("1.5k", "; write 1500, or 1536 for ki"),
        ("2K", "; write 2000, or 2048 for Ki"),
        ("2G", "; write 2000000000, or 2147483648 for Gi"),
        ("20,000,000", "; write 20000000"),
        ("many", ""),
        ("20M rows", ""),
    ],
)
def test_thousands_that_may_be_1000_or_1024_are_refused_with_both(tmp_path: Path, spelling: str, remedy: str) -> None:
    """A letter says nothing of which are meant: the message has the number to write, in CSV and YAML alike."""
    (tmp_path / "t.csv").write_text(f'name,rows,dim,pooling_factor\na,"{spelling}",64,1\n')
    (tmp_path / "t.yaml").write_text(f'tables: [{{name: a, rows: "{spelling}", dim: 64, pooling_factor: 1}}]\n')
    for name in ("t.csv", "t.yaml"):
        with pytest.raises(InputError) as caught:
            load_workload(tmp_path / name, global_batch=4)
        assert [fault.message for fault in caught.value.faults] == [f"must be a whole number, not '{spelling}'{remedy}"]


@pytest.mark.parametrize("spelling", ["FP16", "float16", "torch.float16", "half", "DataType.FP16", "fp16"])
def test_spellings_of_dtypes(tmp_path: Path, spelling: str) -> None:
    path = tmp_path / "tables.csv"
    path.write_text(f"name,rows,dim,pooling_factor,dtype\na,10,8,1,{spelling}\n")
    assert load_workload(path, global_batch=4).tables[0].dtype == "fp16"


TORCHREC = {
    "num_embeddings": 10,
    "embedding_dim": 8,
    "name": "a",
    "data_type": "DataType.FP16",
    "feature_names": ["f", "g"],
    "weight_init_max": 0.1,
    "weight_init_min": None,
    "num_embeddings_post_pruning": None,
    "init_fn": "functools.partial(<built-in method uniform_>)",
    "need_pos": False,
    "input_dim": None,
    "total_num_buckets": None,
    "use_virtual_table": False,
    "virtual_table_eviction_policy": None,
    "enable_embedding_update": False,
    "stash_weights": False,
    "pooling": "PoolingType.SUM",
}
"""`dataclasses.asdict` of an EmbeddingBagConfig of TorchRec 1.8.0 and 1.9.2 as JSON (`default=str`)."""


def test_configurations_of_torchrec_load_as_they_are(tmp_path: Path) -> None:
    """What changes no cost is passed over; what would is refused by name, and so is a pooling that is missing."""
    path = tmp_path / "ebc.json"
    path.write_text(json.dumps([TORCHREC | {"pooling_factor": 3}]))
    (table,) = load_workload(path, global_batch=4).tables
    assert (table.rows, table.dim, table.dtype, table.features) == (10, 8, "fp16", ("f", "g"))
    for more in ({"need_pos": True}, {"use_virtual_table": True}, {"num_embeddings_post_pruning": 5}, {"input_dim": 0}):
        path.write_text(json.dumps([TORCHREC | {"pooling_factor": 3} | more]))
        with pytest.raises(InputError, match=f"{next(iter(more))}: unknown key"):
            load_workload(path, global_batch=4)
    path.write_text(json.dumps([TORCHREC]))
    with pytest.raises(InputError, match="pooling_factor: is missing"):
        load_workload(path, global_batch=4)


def test_published_table_sets_load_as_they_are(tmp_path: Path) -> None:
    """Notes about a set and its tables are passed over; features given one by one are counted."""
    one = {
        "name": "nv",
        "exactness": "exact",
        "num_tables": 1,
        "tables": [
            {
                "name": "t0",
                "num_embeddings": 10,
                "embedding_dim": 8,
                "pooling_factor": 11,
                "features": [{"nnz": 1}, {"nnz": 10}],
            }
        ],
    }
    other = {
        "schema": "tableset/1",
        "id": "n1",
        "optimizer": "none",
        "tables": [
            {
                "name": "t0",
                "feature": "f0",
                "rows": 10,
                "dim": 8,
                "dtype": "fp32",
                "dtype_bytes": 4,
                "pooling_factor": 11,
                "num_poolings": 1.0,
                "weighted": False,
                "pooled": True,
                "zipf_alpha": 0.9,
            }
        ],
    }
    for data, features in ((one, 2), (other, ("f0",))):
        path = tmp_path / "set.json"
        path.write_text(json.dumps(data))
        (table,) = load_workload(path, global_batch=4).tables
        assert (table.features, table.pooling_factor) == (features, 11)


def test_bad_values_are_said_all_at_once_with_line_and_column(tmp_path: Path) -> None:
    text = f'{HEADER}a,0,8,1\nb,-5,8,1\nc,nan,8,1\nd,,8,1\n"e\n e",10,6,1\nf,10,8,nan\ng,10,8,0\na,10,4,1\nh,ten,8,-1\n'
    assert faults_of(tmp_path / "t.csv", text) == [
        "t.csv:2:3: tables.0.rows: must be at least 1, not 0",
        "t.csv:3:3: tables.1.rows: must be at least 1, not -5",
        "t.csv:4:3: tables.2.rows: must be a whole number, not 'nan'",
        "t.csv:5:3: tables.3.rows: is missing",
        "t.csv:7:8: tables.4.dim: 6 is not a multiple of 4; pad the table to 8 columns",
        "t.csv:8:8: tables.5.pooling_factor: must be a finite number, not 'nan'",
        "t.csv:9:8: tables.6.pooling_factor: must be above 0, not '0'",
        "t.csv:10:1: tables.7.name: the name 'a' stands twice, first at table 0; names must differ",
        "t.csv:11:3: tables.8.rows: must be a whole number, not 'ten'",
        "t.csv:11:9: tables.8.pooling_factor: must be above 0, not '-1'",
    ]


def test_an_unknown_column_is_taken_for_one_that_is_missing(tmp_path: Path) -> None:
    """`pooling` is nearer to `poolings`, but what the file lacks is `pooling_factor`."""
    said = faults_of(tmp_path / "t.csv", "name,rows,dim,pooling\na,1,4,1\n")
    assert any("pooling: unknown column; did you mean 'pooling_factor'?" in line for line in said)


def test_wrong_columns_are_said_once(tmp_path: Path) -> None:
    text = "name,rowz,dim,pooling_factor,embedding_dim,\n" + "a,1,4,1,4,0\n" * 50
    said = faults_of(tmp_path / "t.csv", text)
    assert len(said) == 4
    assert "t.csv:1:6: rowz: unknown column; did you mean 'rows'?" in said
    assert any(line.startswith("t.csv:1:1: rows: the column is missing (also read: num_emb") for line in said)
    assert "t.csv:1:30: embedding_dim: dim is given twice; keep one column" in said
    assert "t.csv:1:44: a column has no name (an index?); leave it out" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "t.csv:1:1: has no rows below its header"),
        ("", "t.csv: is empty; its first line names the columns name, rows, dim, pooling_factor, …"),
        ("name;rows\na;1\n", "t.csv:1:1: the fields are separated by ';'; separate them by ','"),
        ("name\trows\na\t1\n", "t.csv:1:1: the fields are separated by '\\t'; separate them by ','"),
        (f"{HEADER}a,1,4\n", "t.csv:2:1: 3 fields where the header has 4"),
        (f'{HEADER}a,"1,4,1\nb,2,4,1\n', "t.csv:2:1: is not valid CSV: unexpected end of data"),
    ],
)
def test_misshapen_csv(tmp_path: Path, text: str, message: str) -> None:
    assert faults_of(tmp_path / "t.csv", text)[0] == message


def test_a_ragged_line_does_not_hide_the_faults_of_others(tmp_path: Path) -> None:
    said = faults_of(tmp_path / "t.csv", f"{HEADER}a,1,4\nb,0,4,1\n")
    assert [line.split(" ")[0] for line in said] == ["t.csv:2:1:", "t.csv:3:3:"]


def test_bad_parquet(tmp_path: Path) -> None:
    """Wrong columns, missing values, no rows, a torn file: each an error, none a stack trace."""
    import pandas as pd

    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"name": ["a", "b"], "rows": [1, None], "dim": [8, 8], "pooling_factor": [1, 1]})
    frame.to_parquet(path)
    assert faults_of(path) == ["t.parquet: tables.1.rows: is missing"]
    whole = path.read_bytes()
    for torn in (whole[: len(whole) // 2], b"", whole[:100] + bytes(50) + whole[150:]):
        path.write_bytes(torn)
        (said,) = faults_of(path)
        assert said.startswith(("t.parquet: is not a whole Parquet file", "t.parquet: cannot be read"))
    frame.rename(columns={"rows": "rowz"}).to_parquet(path)
    said_twice = faults_of(path)
    assert "t.parquet: rowz: unknown column; did you mean 'rows'?" in said_twice
    assert len(said_twice) == 2
    frame.iloc[:0].to_parquet(path)
    assert faults_of(path) == ["t.parquet: holds no tables"]


def test_positions_in_yaml_follow_the_words_of_the_file(tmp_path: Path) -> None:
    text = (
        "- {name: a, num_embeddings: 0, dim: 8, hotness: 1}\n"
        "- {name: a, rows: 3, hash_size: 4, dim: 8, hotness: 1, weightd: 1}\n"
    )
    assert faults_of(tmp_path / "t.yaml", text) == [
        "t.yaml:1:13: tables.0.rows: must be at least 1, not 0",
        "t.yaml:2:4: tables.1.name: the name 'a' stands twice, first at table 0; names must differ",
        "t.yaml:2:22: 1.hash_size: rows is given twice, as 'hash_size' too; keep one",
        "t.yaml:2:56: tables.1.weightd: unknown key; did you mean 'weighted'?",
    ]


def test_a_file_that_is_no_list_of_tables(tmp_path: Path) -> None:
    for name, text in (("t.yaml", "tables: 3\n"), ("t.txt", "x"), ("t.json", "{}")):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(InputError):
            read_profiles(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_profiles(tmp_path / "absent.csv")


def test_a_wide_header_costs_no_time(tmp_path: Path) -> None:
    """Each fault of 8,000 unknown columns is at its own column, found in one pass over the line."""
    names = [f'"a,{n}"' for n in range(8000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" * 8000) + "\n")
    begin = time.process_time()
    with pytest.raises(InputError) as caught:
        read_profiles(path)
    assert time.process_time() - begin < 3, "10 s where each column is looked for from the start of the line"
    found = [fault.column for fault in caught.value.faults if fault.message.startswith("unknown column")]
    assert found == list(itertools.accumulate((len(name) + 1 for name in names[:-1]), initial=1))
