"""The commands that a project's own files suggest as gates. Nothing is started, and nothing has to be installed."""

from ralphtool.core.gate_sources import SourceFolder, is_only_test, is_python_test, parse_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphtool.core.gate_sources import Guess


def infer(project: str) -> "Guess":
    """The usual commands for the project's languages; the Makefile is used only if there are none."""
    folder = SourceFolder(project)
    guesses = [guess(folder) for is_used, guess in _LANGUAGES if is_used(folder)]
    checks = [command for one, _ in guesses for command in one]
    tests = [command for _, one in guesses for command in one]
    return (checks, tests) if checks or tests else _infer_makefile(folder)


# --- languages --------------------------------------------------------------------------------------


def _infer_cargo(folder: SourceFolder) -> "Guess":
    is_workspace = any(name.partition(".")[0] == "workspace" for name in parse_tables(folder.read("Cargo.toml")))
    scope = " --workspace" if is_workspace else ""  # without it, only the package at the top is tested
    return [f"cargo check{scope}"], [f"cargo test{scope}"]


def _infer_go(folder: SourceFolder) -> "Guess":
    modules = _list_go_modules(folder.read("go.work")) if "go.work" in folder.names else ["."]
    places = " ".join("./..." if one == "." else f"./{one}/..." for one in modules)
    return ([f"go vet {places}"], [f"go test {places}"]) if places else ([], [])


def _list_go_modules(text: str) -> list[str]:
    """The folders after `use`, on one line or in parentheses."""
    found, inside = [], False
    for line in text.split("\n"):
        words = line.partition("//")[0].replace("(", " ( ").replace(")", " ) ").split()
        if words[:1] == ["use"]:
            inside = "(" in words
            words = words[1:]
        elif not inside:
            continue
        found += [word.strip('"').removeprefix("./").rstrip("/") or "." for word in words if word not in "()"]
        inside = inside and ")" not in words
    return found


def _infer_node(folder: SourceFolder) -> "Guess":
    from ralphtool.core import gate_node

    return gate_node.infer(folder)


def _infer_python(folder: SourceFolder) -> "Guess":
    from ralphtool.core import gate_python

    return gate_python.infer(folder)


def _infer_ruby(folder: SourceFolder) -> "Guess":
    if ".rspec" in folder.names or "spec_helper.rb" in folder.open("spec").names:
        return [], ["bundle exec rspec"]
    if not any(name.endswith("_test.rb") or name == "test_helper.rb" for name in folder.open("test").names):
        return [], []
    if "rails" in folder.open("bin").names:
        return [], ["bin/rails test"]
    return [], ["bundle exec rake test"] if "Rakefile" in folder.names else []


def _infer_php(folder: SourceFolder) -> "Guess":
    from ralphtool.core import gate_node

    package = gate_node.read_json(folder, "composer.json")
    scripts, needs = package.get("scripts"), package.get("require-dev")
    if isinstance(scripts, dict) and "test" in scripts:
        return [], ["composer test"]
    if isinstance(needs, dict) and "pestphp/pest" in needs:
        return [], ["vendor/bin/pest"]
    return [], ["vendor/bin/phpunit"] if {"phpunit.xml", "phpunit.xml.dist"} & folder.names else []


def _infer_others(folder: SourceFolder) -> "Guess":
    """Languages with one usual test command."""
    for mark, command in _USUAL_TESTS:
        if mark in folder.names or (mark.startswith("*") and any(name.endswith(mark[1:]) for name in folder.names)):
            return [], [command]
    return [], []


_USUAL_TESTS = (
    *(("mvnw", "./mvnw test"), ("pom.xml", "mvn test"), ("gradlew", "./gradlew test"), ("build.gradle", "gradle test")),
    *(("build.gradle.kts", "gradle test"), ("mix.exs", "mix test"), ("Package.swift", "swift test")),
    *((mark, "dotnet test") for mark in ("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj")),
)


def _infer_makefile(folder: SourceFolder) -> "Guess":
    name = next((name for name in ("GNUmakefile", "makefile", "Makefile") if name in folder.names), "")
    heads = [
        line.partition(":")[0].split() for line in folder.read(name).split("\n") if ":" in line and line[:1].isalpha()
    ]
    targets = {target for head in heads for target in head}
    checks = [f"make {target}" for target in ("lint", "check") if target in targets]
    return checks, ["make test"] if "test" in targets else []


def _has(*names: str) -> "Callable[[SourceFolder], bool]":
    return lambda folder: bool(folder.names & set(names))


def _has_python(folder: SourceFolder) -> bool:
    marks = {"pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "pytest.ini", "requirements.txt", "manage.py"}
    is_only = any(is_only_test(name) for name in folder.names)
    return bool(folder.names & marks) or is_only or any(is_python_test(name) for name in _list_test_names(folder))


def _list_test_names(folder: SourceFolder) -> set[str]:
    return folder.names | folder.open("tests").names | folder.open("test").names


_LANGUAGES: "tuple[tuple[Callable[[SourceFolder], bool], Callable[[SourceFolder], Guess]], ...]" = (
    (_has("Cargo.toml"), _infer_cargo),
    (_has("package.json"), _infer_node),
    (_has_python, _infer_python),
    (_has("go.mod", "go.work"), _infer_go),
    (_has("Gemfile", ".rspec"), _infer_ruby),
    (_has("composer.json"), _infer_php),
    (lambda folder: True, _infer_others),
)
