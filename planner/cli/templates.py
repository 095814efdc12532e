"""What `planner init` writes: starters of known models, clusters on the base of a shipped one, schemas for editors."""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from planner.cli.flags import SHELVES

SHIPPED = resources.files("planner.cli") / "starters"
CATALOG = SHELVES["workload"]
SCHEMAS = "schemas"
"""The folder of the schemas, beside the files that are edited."""
KINDS = {"topology.yaml": "topology", "workload.yaml": "workload", "policy.yaml": "policy"}
"""Which schema the keys of a file follow."""


@dataclass(frozen=True)
class Template:
    """A model to start from."""

    workload: Traversable
    tables: Traversable
    policy: Traversable

    def texts(self) -> dict[str, str]:
        """The files by name; of the catalog's workload the name is to be the user's."""
        workload = self.workload.read_text(encoding="utf-8")
        workload = re.sub(r"^tables: tables/.*$", "tables: tables.csv", workload, flags=re.MULTILINE)
        return {
            "workload.yaml": re.sub(r"^name: .*$", "name: my-model", workload, count=1, flags=re.MULTILINE),
            "tables.csv": self.tables.read_text(encoding="utf-8"),
            "policy.yaml": self.policy.read_text(encoding="utf-8"),
        }


EXAMPLE = Template(SHIPPED / "workload.yaml", SHIPPED / "tables.csv", SHIPPED / "policy.yaml")
CRITEO = SHIPPED / "criteo_policy.yaml"
TEMPLATES = {
    "dlrm": Template(CATALOG / "dlrm-v1.yaml", CATALOG / "tables" / "dlrm-v1.csv", CRITEO),
    "dcnv2": Template(CATALOG / "dlrm-dcnv2.yaml", CATALOG / "tables" / "dlrm-dcnv2.csv", CRITEO),
    "wukong": Template(SHIPPED / "wukong.yaml", CATALOG / "tables" / "dlrm-dcnv2.csv", CRITEO),
}


def topology_text(base: str | None, nodes: int | None) -> str:
    """The starter's cluster, or one on the base of a catalog's, with so many nodes.

    Raises InputError where that base cannot have them.
    """
    if base is None:
        return (SHIPPED / "topology.yaml").read_text(encoding="utf-8")
    from planner.cli.inputs import say_note
    from topologies.loading import load_topology

    said: list[str] = []
    group = load_topology(base, nodes=nodes, say=said.append).nodes[0]
    for words in said:
        say_note(words)
    domain = f"  nodes.0.links.scale_up.domain: {group.domain_ranks}\n" if said else ""
    return (
        f"# A cluster on the base of {base}; what is set here comes instead. The base: planner catalog show {base}\n"
        "# All keys: planner schema topology\n"
        f"base: {base}\n"
        "name: my-cluster\n"
        "set:\n"
        f"  nodes.0.count: {group.count}\n"
        f"{domain}"
        "  # nodes.0.reserve.hbm: 10%                     # what a plan leaves free\n"
        "  # nodes.0.links.scale_out.bandwidth: 400Gb/s   # per card, one direction\n"
    )


def with_modeline(name: str, text: str) -> str:
    """A file with the line by which editors find its schema: yaml-language-server's."""
    if name not in KINDS:
        return text
    return f"# yaml-language-server: $schema={SCHEMAS}/{KINDS[name]}.schema.json\n{text}"


@cache
def schema_text(kind: str) -> str:
    """The schema of a kind, as `planner schema` prints it."""
    from planner.cli.schema import SchemaKind, schema_document

    return json.dumps(schema_document(SchemaKind(kind)), indent=2, ensure_ascii=False) + "\n"
