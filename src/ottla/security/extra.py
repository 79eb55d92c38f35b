"""Error for features that need the packages of the extra `security`."""

from ottla.extras import install_command


class MissingPackage(RuntimeError):
    """A feature whose package is not installed.

    module  name of the module that could not be imported, as the ImportError has it
    """

    def __init__(self, feature: str, module: str | None) -> None:
        package = (module or "packages").partition(".")[0]
        super().__init__(f"{feature} needs {package}: {install_command('security')}")
