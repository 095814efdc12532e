"""Plan documents as versions 1 and 2 wrote them."""

import json
from typing import Any

from planner.document.plan import Plan

OLD_NAMES = {
    "memory_multipliers": "byte_prices",
    "exhaustive_search_s": "tried_s",
    "exhaustive_search": "tried",
    "nodes": "cases",
    "decision": "decides",
    "branches_on": "divided_by",
}


def version_2(plan: Plan) -> dict[str, Any]:
    """The mapping that version 2 wrote for a plan: every rank has a shard of its own."""
    document: dict[str, Any] = json.loads(plan.to_json())
    for table in document["tables"]:
        table["shards"] = [each for shard in table["shards"] for each in _of_each_rank(shard)]
    return {**document, "schema_version": 2}


def _of_each_rank(shard: dict[str, Any]) -> list[dict[str, Any]]:
    alike = {key: value for key, value in shard.items() if key != "replicas"}
    return [alike | {"rank": shard["rank"] + n} for n in range(shard.get("replicas", 1))]


def version_1(plan: Plan) -> dict[str, Any]:
    """The mapping that version 1 wrote for a plan: proofs under old names, error bars in old words."""
    document = version_2(plan)
    old = {key: _old(value) if key in ("proof", "infeasibility") else value for key, value in document.items()}
    bars = [each.get("error_bar") for each in (*old["stages"], old.get("objective") or {})]
    for bar in filter(None, bars):
        bar["spec_only"] = [_old_words(words) for words in bar["spec_only"]]
    return {**old, "schema_version": 1}


def _old_words(words: str) -> str:
    return words.replace("SSD of", "storage of").replace("remote hosts of", "hosts of")


def _old(value: Any) -> Any:
    """Under the old names; proofs at other protocols, which version 1 did not have, stay as they are."""
    if isinstance(value, dict):
        of = {key: each if key == "at_other_protocols" else _old(each) for key, each in value.items()}
        return {OLD_NAMES.get(key, key): each for key, each in of.items()}
    return [_old(each) for each in value] if isinstance(value, list) else value
