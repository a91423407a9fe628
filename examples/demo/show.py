"""The output of the demo: a progress bar on a terminal, else plain lines."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

LABEL = 11  # columns
PARTS = 4  # lines of progress where there is no terminal


class Show:
    """The screen. `say` prints a labelled line, `progress` moves the bar (or prints a line for each quarter)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._part = 0

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

    def begin(self, text: str) -> None:
        """Begin to show progress: *text*, until it is known how much there is to do."""
        if self._console.is_terminal:
            columns = (BarColumn(None), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=self._console, transient=True, expand=True)
            self._bar.add_task(text, total=None)
            self._bar.start()
        else:
            self.say("progress", f"  0 %  {text}")

    def progress(self, done: int, total: int, text: str) -> None:
        """Show how much is done, and *text* beside it."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total, description=text)
        elif done * PARTS // total > self._part:
            self._part = done * PARTS // total
            self.say("progress", f"{100 * self._part // PARTS:3} %  {text}")

    def end(self) -> None:
        """Stop showing progress."""
        if self._bar:
            self._bar.stop()
            self._bar = None

    def table(self, table: Table) -> None:
        """The closing table."""
        self._console.print(table)

    def screen(self, command: str, text: str) -> None:
        """What a command said, in its own lines."""
        self._console.print(Text(f"\n$ {command}", "bold"))
        self._console.print(Text(text), soft_wrap=True)

    def headline(self, text: str) -> None:
        """What was seen, in one line."""
        self._console.print(f"\n[bold]{text}[/]")

    def verdict(self, problems: list[str], text: str) -> None:
        """The last lines."""
        for problem in problems:
            self.say("problem", problem, "red")
        self._console.print()
        style, word = ("bold red", "FAILED") if problems else ("bold green", "PASSED")
        self._console.print(Text(f"{word}: {text}", style))
