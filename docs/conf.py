"""The site: Sphinx over the Markdown of this folder, with the reference that code states (`reference_pages`).

`sphinx-build -W -n docs build/site` makes it, without a network; what it makes loads nothing from elsewhere.
"""

import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

ROOT = Path(__file__).parents[1]
LOGGER = getLogger(__name__)
sys.path.insert(0, str(ROOT / "docs"))

import reference_pages

from planner import __version__

project = "shardplan"
version = release = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"shardplan {version}"
html_show_copyright = False
html_copy_source = False
html_math_renderer = "mathml"
highlight_language = "text"
nitpicky = True
exclude_patterns = ["_*"]

INDEXES = re.compile(r"(.*/)?index|decisions/README")
"""Pages whose lists of links are the contents of the site."""
LISTED = re.compile(r"^(?:-|\d+\.) \[[^]]+\]\(([^)#:]+)\.md\)", re.MULTILINE)
"""The page that an item of such a list begins with."""
BEYOND = re.compile(r"\[([^]]+)\]\((?:\.\./)+((?:benchmarks|CHANGELOG)[^)]*)\)")
"""A link to a file of the repository that is no page."""


def add_what_is_generated(_: Sphinx, page: str, source: list[str]) -> None:
    """Append the reference to the pages that introduce it, and the contents to those that list pages; name files that
    are no pages."""
    for file in BEYOND.finditer(source[0]):
        if not (ROOT / file[2]).exists():
            LOGGER.warning("there is no file %s", file[2], location=page)
    source[0] = BEYOND.sub(r"\1 (`\2` of the repository)", source[0])
    if page in reference_pages.PAGES:
        source[0] += "\n" + reference_pages.PAGES[page]()
    if INDEXES.fullmatch(page):
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(LISTED.findall(source[0])) + "\n```\n"


def write_inline_math(writer: nodes.NodeVisitor, node: nodes.math) -> None:
    """A formula within a line, as MathML."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def write_block_math(writer: nodes.NodeVisitor, node: nodes.math_block) -> None:
    """A formula on a line of its own, as MathML."""
    writer.body.append(f'<div style="overflow: auto hidden">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Browsers draw MathML by themselves: no script, no font and no LaTeX."""
    app.add_html_math_renderer("mathml", (write_inline_math, None), (write_block_math, None))
    app.connect("source-read", add_what_is_generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
