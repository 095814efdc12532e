"""What holds for every test: none depends on how fast the machine is, and none pays for the thousands beside it."""

import gc
from collections.abc import Generator
from contextlib import suppress

import pytest

with suppress(ModuleNotFoundError):  # tests of the wheel run in environments without it
    from hypothesis import settings

    settings.register_profile("any-machine", deadline=None)
    settings.load_profile("any-machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest of the slow tests begin first, as `slow(seconds=...)` states: one that began last would leave all
    cores but its own idle."""
    items.sort(key=lambda item: -max((mark.kwargs.get("seconds", 0) for mark in item.iter_markers("slow")), default=0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage is looked for once the tests are collected, and not among what these are made of, which stays to the end:
    to look through millions of objects again and again takes a fifth of the time of all tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
