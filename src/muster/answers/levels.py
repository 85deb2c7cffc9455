"""How much attention something needs. Apart, since the command line names it before anything heavy is imported."""

from enum import IntEnum


class Level(IntEnum):
    WELL = 0
    WARNING = 1
    ERROR = 2
