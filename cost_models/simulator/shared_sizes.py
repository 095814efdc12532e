"""What a rank does of a layer that the ranks of its node share, for each sample of its own: a part of the work, for the
samples of all of them."""

from dataclasses import replace

from cost_models.dense_size import DenseSize, LayerProduct
from cost_models.dense_units import DenseUnit
from cost_models.workload.layer_kinds import Product


def shared_size(unit: DenseUnit, ranks: int) -> DenseSize:
    """Of a layer that so many ranks share. Where these have tokens of it, it is as much as of a layer of its own
    samples, but for attention in as many steps as there are ranks."""
    if unit.held.cut == "tokens":
        return _tokens(unit, ranks)
    size, made = unit.size, _of_kind(unit, ranks)
    own = replace(made, macs=size.macs, parameters=size.parameters, beside=size.beside, recomputed=None)
    return own if size.recomputed is None else replace(own, recomputed=own)


def _tokens(unit: DenseUnit, ranks: int) -> DenseSize:
    if unit.held.passes == "all_to_all":
        return unit.size
    steps = []
    for each in unit.size.within_samples:
        queries, keys = each.rows / ranks, each.columns / ranks
        steps += [Product(queries, each.inner, keys, each.kernel, each.count * ranks)] * ranks
    own = replace(unit.size, within_samples=tuple(steps), recomputed=None)
    return own if unit.size.recomputed is None else replace(own, recomputed=own)


def _of_kind(unit: DenseUnit, ranks: int) -> DenseSize:
    if unit.held.cut == "heads":
        return _heads(unit, ranks)
    if unit.held.cut in ("inner", "width"):
        return _cross(unit, ranks)
    (layer,) = unit.size.products
    return _product(layer, ranks, by_columns=unit.held.cut == "columns")


def _product(layer: LayerProduct, ranks: int, *, by_columns: bool) -> DenseSize:
    """One product: all inputs and some columns of the outputs, or some inputs and addends of all outputs."""
    rows, inputs, outputs = layer.rows * ranks, layer.inputs, layer.outputs
    if by_columns:
        outputs /= ranks
    else:
        inputs /= ranks
    read, written = rows * inputs, rows * outputs
    return DenseSize(
        0, 0, read + written, (LayerProduct(inputs, outputs, rows, is_aligned=layer.is_aligned),), (), read, written
    )


def _cross(unit: DenseUnit, ranks: int) -> DenseSize:
    """Products with all that the node reads; then two numbers read for each that a rank's own samples have."""
    (layer,), sizes = unit.layers, DenseSize()
    for number, product in enumerate(unit.size.products):
        sizes += _product(product, ranks, by_columns=unit.held.cut == "width" or number % 2 == 0)
    return replace(sizes, activation_elements=sizes.activation_elements + 2 * layer.count * layer.output.numbers)


def _heads(unit: DenseUnit, ranks: int) -> DenseSize:
    """Projections of some heads, of all samples; attention of these writes and reads what projections give."""
    queries, keys, values, outputs = unit.size.products
    to_heads = [_product(each, ranks, by_columns=True) for each in (queries, keys, values)]
    projected = sum([*to_heads, _product(outputs, ranks, by_columns=False)], DenseSize())
    of_heads = 2 * queries.rows * queries.outputs + keys.rows * keys.outputs + values.rows * values.outputs
    within = unit.size.product_inputs - sum(each.rows * each.inputs for each in unit.size.products)
    made = unit.size.product_gradients - sum(each.rows * each.outputs for each in unit.size.products)
    return replace(
        projected,
        activation_elements=projected.activation_elements + of_heads,
        within_samples=unit.size.within_samples,
        uncrossed=of_heads,
        product_inputs=projected.product_inputs + within,
        product_gradients=projected.product_gradients + made,
    )
