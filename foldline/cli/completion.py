"""`foldline completion`: what makes a shell complete foldline's commands and options."""

from collections.abc import Callable
from typing import Annotated, Literal

from cyclopts import App, Parameter

from foldline.cli.context import Context
from foldline.cli.failures import OK


def completion_of(app: App) -> Callable[..., int]:
    """The command that prints scripts for this application."""

    def completion(
        shell: Literal["bash", "zsh", "fish"],
        /,
        *,
        context: Annotated[Context, Parameter(parse=False)],
    ) -> int:
        """Print a script that completes commands and options. Writes no file.

        bash: foldline completion bash >> ~/.bash_completion;
        zsh: foldline completion zsh > a folder of $fpath, as _foldline;
        fish: foldline completion fish > ~/.config/fish/completions/foldline.fish

        Args:
            shell: Which shell it is for.
            context: Where to read and write.
        """
        script = app.meta.generate_completion(prog_name="foldline", shell=shell)
        if context.out.json:
            context.out.record({"shell": shell, "script": script})
        else:
            context.out.text(script)
        return OK

    return completion
