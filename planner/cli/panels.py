"""Help of commands with many flags: in panels, one for each task."""

from typing import Any

from typer.core import TyperCommand

INPUTS = "Inputs"
PANELS = {
    INPUTS: "topology workload changes nodes global-batch set try group tables columns dim batch session sample kind"
    " separator words prices like trust-pickle",
    "Objective and limits": "target-qps max-step fits max-price max-power by max-nodes cost-model robust goals",
    "What plans may use": "policy tiers each-tier shardings stash optimizer-state runtime exchange max-shards"
    " column-multiple pin forbid reserve replicas sync-every dense checkpointing",
    "Search": "exact time-limit effort gap seed seeds solver",
    "Re-planning": "from max-move pay-back lost-nodes",
    "Conditions": "steps pooling jitter slow-rank slow-link lost-card data-loading draw-rows inverse-roots",
    "Execution": "engine scheduler workers memory resume sql",
    "Output": "simulate trace ranks chakra all-to-all picture report write-model output format quiet help",
}
"""The flags of each panel, in the order of a help page."""
PANEL_OF = {f"--{flag}": panel for panel, flags in PANELS.items() for flag in flags.split()}


class PanelledCommand(TyperCommand):
    """A command with more than a dozen flags: its help lists them by what they are for. A flag that means something
    else in one command than in the others names its panel there (`rich_help_panel`)."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then a section for each panel that has flags of this command."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{panel: [] for panel in PANELS}}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                own = getattr(parameter, "rich_help_panel", None)
                panel = own or next((PANEL_OF[name] for name in parameter.opts if name in PANEL_OF), "Arguments")
                sections[panel].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
