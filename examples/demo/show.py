"""The output of the demo: a progress bar on a terminal, else plain lines."""

import json

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from examples.demo.table import plural, seconds

LABEL = 11  # columns


class Show:
    """The screen. `say` prints a labelled line, `progress` moves the bar (or prints a line for each tenth)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._tenth = 0

    def title(self, text: str) -> None:
        """The first line."""
        self._console.print(f"\n[bold]{text}[/]\n", highlight=False)

    def say(self, label: str, text: str, style: str = "") -> None:
        """One labelled line, wrapped under itself."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=LABEL, style="dim")
        grid.add_column()
        grid.add_row(label, Text(text, style))
        self._console.print(grid)

    def begin(self, total: int) -> None:
        """Begin to show progress."""
        self._console.print()
        if self._console.is_terminal:
            columns = (BarColumn(None), TaskProgressColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=self._console, transient=True, expand=True)
            self._bar.add_task("jobs", total=total)
            self._bar.start()

    def progress(self, done: int, total: int) -> None:
        """Show how many jobs are done."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=done)
        elif done * 10 // total > self._tenth:
            self._tenth = done * 10 // total
            self.say("progress", f"{self._tenth * 10:3} %  {done:,} of {total:,} jobs done")

    def autoscaler(self, line: str) -> None:
        """What the autoscaler printed, for people."""
        seen = json.loads(line)
        oldest = "none waits" if seen["oldest_age"] is None else f"oldest {seconds(seen['oldest_age'])}"
        self.say("autoscaler", f"length {seen['length']:>6,}   {oldest:<13}  wants {plural(seen['workers'], 'worker')}")

    def end(self) -> None:
        """Stop showing progress."""
        if self._bar:
            self._bar.stop()
            self._bar = None

    def table(self, table: Table) -> None:
        """The closing table."""
        self._console.print(table)

    def verdict(self, problems: list[str], text: str) -> None:
        """The last lines."""
        for problem in problems:
            self.say("problem", problem, "red")
        self._console.print()
        style, word = ("bold red", "FAILED") if problems else ("bold green", "PASSED")
        self._console.print(Text(f"{word}: {text}", style))
