"""The options that name a function of the user's own, the same in every script."""

from __future__ import annotations

import dataclasses

from veenv.tasks.task import Task
from veenv.tasks.user import from_path


@dataclasses.dataclass(frozen=True)
class FunctionConfig:
    """A function of your own, instead of a task.

    Raises:
      ValueError: there are arguments, but no function.
    """

    function: str | None = None
    """Function of your own, as MODULE:NAME, looked for in the current folder first; it is traced
    at --args."""
    args: str | None = None
    """Arguments of the function: shapes such as `f32[3],f32[3,4]`, or a Python tuple such as
    `(1.0, [2.0, 3.0])`; by default what the function NAME_args() of its module returns."""
    argnums: str | None = None
    """Arguments to differentiate by, such as `0,2`; all of floating-point numbers by default."""

    def __post_init__(self) -> None:
        """Checks that there is a function where there are arguments."""
        if self.function is None and (self.args is not None or self.argnums is not None):
            raise ValueError("--args and --argnums belong to --function")

    def check_one(self, task: str | None) -> None:
        """Checks that there is either a task or a function.

        Raises:
          ValueError: there is neither, or both.
        """
        if task is None and self.function is None:
            raise ValueError("missing option --task NAME or --function MODULE:NAME")
        if task is not None and self.function is not None:
            raise ValueError("give either --task NAME or --function MODULE:NAME, not both")

    @property
    def imports(self) -> str | None:
        """Python that makes the function known, as `import_line`; None where there is none."""
        if self.function is None:
            return None
        from veenv.measure.report.source import import_line

        return import_line(self.function, self.args, self.argnums)

    def read(self) -> Task | None:
        """The function as a task; None where there is none.

        Raises:
          ValueError: as `veenv.tasks.user.from_path`.
        """
        if self.function is None:
            return None
        return from_path(self.function, self.args, self.argnums)
