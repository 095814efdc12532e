"""The shard of the how-to for split tables: FBGEMM reads and trains it as a table that is not split."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "split-tables.md"
SAMPLES, COLUMNS, LEARNING_RATE = 50, 8, 0.1


@pytest.mark.parametrize("hot_rows", [0, 1, 30, 99, 100])
def test_a_split_shard_is_read_and_trained_as_a_whole_one(hot_rows: int) -> None:
    """Sums and updated rows of samples of 0 to 8 ids, of a shard that begins at row 40."""
    (code,) = re.findall(r"```python\n(# split_bag\.py.*?)```", HOW_TO.read_text(), re.DOTALL)
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(code, "split_bag.py", "exec"), names)
    shard = {"row_start": 40, "rows": 100, "columns": COLUMNS, "hot_rows": hot_rows}
    split = names["SplitBag"](shard, "cpu", optimizer=EmbOptimType.EXACT_SGD, learning_rate=LEARNING_RATE)
    random = np.random.default_rng(hot_rows)
    weights = torch.from_numpy(random.random((100, COLUMNS), dtype=np.float32))
    hot, cold = split.bags.split_embedding_weights()
    hot[:hot_rows], cold[: 100 - hot_rows] = weights[:hot_rows], weights[hot_rows:]
    whole = torch.nn.EmbeddingBag.from_pretrained(weights.clone(), freeze=False, mode="sum", include_last_offset=True)
    offsets = torch.from_numpy(np.append(0, random.integers(0, 9, SAMPLES).cumsum()))
    rows = torch.from_numpy(random.integers(0, 100, int(offsets[-1])))
    found, expected = split(rows + 40, offsets), whole(rows, offsets)
    assert torch.allclose(found, expected, atol=1e-5)
    gradient = torch.from_numpy(random.random(found.shape, dtype=np.float32))
    found.backward(gradient)
    expected.backward(gradient)
    with torch.no_grad():
        whole.weight -= LEARNING_RATE * whole.weight.grad
    trained = torch.cat([hot[:hot_rows], cold[: 100 - hot_rows]])
    assert torch.allclose(trained, whole.weight, atol=1e-5)
