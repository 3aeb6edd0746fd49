"""Commands of the command line, run in the process of the test."""

from typer.testing import CliRunner

from bures.cli._app import app


def invoke(*words, catch=False):
    """What becomes of a command; an error is raised unless it is to be caught."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=catch)


def ended(*words, code=0):
    """What becomes of a command that ends with this exit code."""
    result = invoke(*words)
    assert result.exit_code == code, result.output
    return result


def printed(*words, code=0):
    """What a command that ends with this exit code prints."""
    return ended(*words, code=code).stdout
