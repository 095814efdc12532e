"""What holds for every test: none depends on how fast the machine is."""

from contextlib import suppress

with suppress(ModuleNotFoundError):  # tests of the wheel run in environments without it
    from hypothesis import settings

    settings.register_profile("any-machine", deadline=None)
    settings.load_profile("any-machine")
