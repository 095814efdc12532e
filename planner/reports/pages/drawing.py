"""Figures drawn by a browser, in a process of its own.

A browser that does not start leaves threads of kaleido's behind, for which the process that started it would wait
without end. So this one ends without waiting: figures come in on its standard input, images go out on its output.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any


def drawn(figures: Sequence[dict[str, Any]], options: Sequence[dict[str, Any]]) -> list[bytes]:
    """The image of each plotly figure, by kaleido's options for it.

    Raises FileNotFoundError where there is no browser, and ChildProcessError with the reason where it fails.
    """
    found = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps([list(figures), list(options)]),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise RuntimeError(f"figures were not drawn: {found.stderr}")
    answer = json.loads(found.stdout)
    if answer["fault"] is not None:
        raise ChildProcessError(answer["fault"]) if answer["fault"] else FileNotFoundError
    return [base64.b64decode(image) for image in answer["images"]]


def _answer(figures: list[dict[str, Any]], options: list[dict[str, Any]]) -> dict[str, object]:
    """The images; or as a fault why there are none, which is empty without a browser."""
    import kaleido
    from choreographer.errors import BrowserDepsError, BrowserFailedError, ChromeNotFoundError

    async def draw() -> list[bytes]:
        async with kaleido.Kaleido(n=1, mathjax=False) as browser:
            return [await browser.calc_fig(each, opts=of) for each, of in zip(figures, options, strict=True)]

    try:
        images = asyncio.run(draw())
    except ChromeNotFoundError:
        return {"fault": ""}
    except (BrowserDepsError, BrowserFailedError) as error:
        return {"fault": str(error.args[0] if error.args else error).partition("\n")[0].rstrip(".")}
    return {"fault": None, "images": [base64.b64encode(image).decode() for image in images]}


def main() -> None:
    """Answer, and end whatever threads there are."""
    status = 1
    try:
        sys.stdout.write(json.dumps(_answer(*json.load(sys.stdin))))
        sys.stdout.flush()
        status = 0
    except BaseException:  # noqa: BLE001 - told by the process that waits for this one
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
