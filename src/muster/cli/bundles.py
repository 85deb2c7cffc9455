"""Commands whose options come in bundles: a dataclass of options is one parameter of the function."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer

from muster.cli.status import Status


def command(
    app: typer.Typer, name: str | None = None, **settings: Any
) -> Callable[[Callable[..., Status]], Callable[..., Status]]:
    """Make a command of a function. A parameter whose type is a dataclass stands for the options in its fields; those
    of the first one come last in the help."""

    def register(function: Callable[..., Status]) -> Callable[..., Status]:
        taken = inspect.signature(function).parameters
        common = next(iter(taken.values()))
        bundles: dict[str, Any] = {one.name: one.annotation for one in taken.values() if is_dataclass(one.annotation)}
        own = [option for one in list(taken.values())[1:] for option in _options_of(one)]
        parameters = own + _options_of(common)

        @wraps(function)
        def run(**given: Any) -> Status:
            made = {
                name: bundle(**{one.name: given.pop(one.name) for one in fields(bundle)})
                for name, bundle in bundles.items()
            }
            return function(**made, **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        del run.__wrapped__  # typer would look behind the signature
        app.command(name, **settings)(run)
        return function

    return register


def _options_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The parameters that typer makes options of."""
    if not is_dataclass(parameter.annotation):
        return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    hints = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(parameter.annotation)
    ]
