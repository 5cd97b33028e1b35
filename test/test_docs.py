# SPDX-License-Identifier: Apache-2.0
"""The pages say what the code does: they are up to date, and what they show runs."""

import inspect
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_versions

import custom_pypto
from custom_pypto.arguments import checked
from custom_pypto.authoring import check
from custom_pypto.graph.python_operators import PYTHON_OPERATORS

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import cann_functions
import functions
import pages

ROOT = Path(__file__).parents[1]
PAGES = [
    pytest.param(page, id=page.name, marks=[pytest.mark.unchecked(reason="its programs are wrong")] * wrong)
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for wrong in [page.name == "checks.md"]
]


def operators_of_the_library():
    names = (name.removeprefix("custom_pypto::") for name in torch._C._dispatch_get_all_op_names())
    names = {name.split(".")[0] for name in names if "::" not in name}
    names -= {name.removeprefix("custom_pypto::") for name in PYTHON_OPERATORS}
    return {name for name in names if not name.endswith(("_backward", "_functional"))}


def test_every_operator_has_a_function_and_a_page():
    assert operators_of_the_library() == set(custom_pypto.__all__)
    pages_there = {path.stem for path in (ROOT / "docs" / "operators").glob("*.md")}
    assert pages_there == set(custom_pypto.__all__), "write the pages with: python docs/pages.py"


@pytest.mark.parametrize("operator", custom_pypto.__all__)
def test_a_page_is_what_schema_docstring_and_example_make_of_it(operator):
    page = ROOT / "docs" / "operators" / f"{operator}.md"
    written = page.read_text() if page.exists() else ""
    assert written == pages.page(operator), "write the pages with: python docs/pages.py"


def test_the_table_of_operators_is_what_schemas_and_docstrings_make_of_it():
    assert (ROOT / "README.md").read_text() == pages.readme(), "write it with: python docs/pages.py"
    assert pages.table() in pages.readme()


def test_the_page_of_canns_functions_is_what_the_libraries_export():
    there = set.union(*(cann_functions.exported(library.name) for library in cann_functions.LIBRARIES.glob("*.so")))
    there |= {f"ge::{owner}::{name}" for owner, names in cann_functions.graph_engine().items() for name in names}
    assert not {name.replace("ge::GE", "ge::functions::GE") for name in cann_functions.PARTS} - there
    if torch_versions.DECLARES_NEWEST_FUNCTIONS:
        assert cann_functions.PAGE.read_text() == cann_functions.page(), "write it: python docs/cann_functions.py"


def test_the_page_of_dtypes_is_what_the_rows_of_the_library_say():
    assert functions.PAGE.read_text() == functions.page(), "write it: python docs/functions.py"


def test_every_environment_variable_is_in_the_table():
    """The table has every name that the wheels' sources read as a literal."""
    read = re.compile(r"""(?:getenv\(|environment\(|number_in\(|environ\.get\(|environ\[)"([A-Z][A-Z_]+)"(?!\] =)""")
    folders = (ROOT / name for name in ("cann_cpu", "custom_pypto", "graph", "opp"))
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".cpp", ".h")]
    names = {name for path in files for name in read.findall(path.read_text()) if "build" not in path.parts}
    page = (ROOT / "docs" / "environment_variables.md").read_text()
    assert len(names) > 20
    assert sorted(name for name in names - {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"} if f"`{name}`" not in page) == []


def documented_arguments(operator):
    table = re.findall(r"^\| (`.*?`) \| (.*) \|$", pages.page(operator), flags=re.MULTILINE)
    return [(name, text) for names, text in table for name in re.findall(r"`(.*?)`", names)]


@pytest.mark.parametrize("operator", custom_pypto.__all__)
def test_the_page_says_of_every_argument_what_is_checked(operator):
    """The sizes, dtypes and choices in the operator's own table, in every call that its tests have."""
    documented = dict(documented_arguments(operator))
    result = re.search(r"^## Result\n(.*?)^## ", pages.page(operator), flags=re.MULTILINE | re.DOTALL)[1]
    for call in check.Operator(custom_pypto, operator, ROOT).calls():
        rows = checked(lambda: call.overload(**call.on("meta")))  # noqa: B023
        first = next(name for name, row in rows.items() if row.dtypes)
        assert {name for name, value in call.arguments.items() if isinstance(value, torch.Tensor)} <= rows.keys()
        for name, row in rows.items():
            text = result if row.use == "result" else documented[name]
            said = " ".join(text.split())
            if row.use == "one of":
                assert all(value in said for value in row.names), name
            elif row.use == "at least":
                assert f"{row.names[0]} or more" in said, name
            else:
                assert not row.names or f"`[{', '.join(row.names)}]`" in said, name
                like_another = "of the dtype of `" in said or (
                    "tensors without a dtype" in documented[first] and not re.search(r"\b(int|b?float)\d", said)
                )
                like_first = row.dtypes == rows[first].dtypes and "any of these dtypes" in said
                assert like_first or all((dtype and dtype in said) or like_another for dtype in row.dtypes), name
                assert row.use == "result" or (row.use == "matrix") == ("FRACTAL_NZ" in said), name
                assert row.use == "result" or (row.use == "written") == ("**mutated**" in said), name


@pytest.mark.parametrize("operator", custom_pypto.__all__)
def test_the_docstring_names_every_argument_in_order_and_marks_the_mutated_ones(operator):
    schema = getattr(torch.ops.custom_pypto, operator).default._schema
    parameters = list(inspect.signature(getattr(custom_pypto, operator)).parameters)
    documented = documented_arguments(operator)
    assert [name for name, _ in documented] == parameters
    of_the_operator = [argument.name for argument in schema.arguments]
    assert [name for name in parameters if name in of_the_operator] == of_the_operator
    mutated = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    assert [name for name, text in documented if "**mutated**" in text] == mutated


@pytest.mark.parametrize("operator", [name for name in custom_pypto.__all__ if pages.example_of(name).exists()])
def test_the_example_of_a_page_runs(operator, capsys):
    runpy.run_path(str(pages.example_of(operator)), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_and_code_blocks_run(page):
    text = page.read_text()
    if "enable_dynamo_decompositions" in text and not torch_versions.DECOMPOSITIONS_CAN_BE_TURNED_OFF:
        pytest.skip("this torch has no such setting")
    for link in re.findall(r"\]\(([^)#]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        assert link.startswith("http") or (page.parent / link).exists(), f"{page.name} links to {link}"
    for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, str(page), "exec"), {})


def local_links(text):
    """The files to which a page links; the page itself for its own headings."""
    return [link.partition("#")[0] for link in re.findall(r"\]\(((?!\w+:)[^)\s]+)\)", text)]


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    cells = re.findall(r"^\|([^|]*)\|", index.read_text(), flags=re.MULTILINE)
    listed = {(index.parent / link).resolve() for link in local_links("".join(cells))}
    pages_there = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "cann_cpu" / "README.md"}
    assert listed == pages_there


def test_every_folder_has_a_row_in_the_readme():
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    folders = {file.split("/")[0] for file in files if "/" in file and not file.startswith(".")}
    for page in ("README.md", "README_zh.md"):
        assert folders <= set(re.findall(r"^\| `(\w+)/` \|", (ROOT / page).read_text(), flags=re.MULTILINE))


def outline(page):
    """What does not depend on the language: levels of headings, blocks of code, tables with their code, links."""
    text = page.read_text()
    blocks = re.findall(r"^```.*?^```$", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^(#+) ", text, flags=re.MULTILINE)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("|")]
    cells = [[re.findall(r"`[^`]*`", cell) for cell in row] for row in rows]
    links = sorted(link.replace("_zh.md", ".md") for link in local_links(text) if link)
    return {"headings": headings, "blocks": blocks, "tables": cells, "links": links}


@pytest.mark.parametrize("page", ["README.md", "docs/add_an_operator.md"])
def test_the_chinese_page_has_all_that_the_english_one_has(page):
    english, chinese = outline(ROOT / page), outline(ROOT / page.replace(".md", "_zh.md"))
    for part in english:
        assert chinese[part] == english[part]


def test_the_pages_name_the_version():
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## (\d\S*)", changes, flags=re.MULTILINE)
    version = runpy.run_path(ROOT / "cann_cpu" / "backend" / "versions.py")["VERSION"]
    assert released[0] == version
    for page in ("README.md", "README_zh.md", "CHANGELOG.md", "docs/own_repository.md"):
        assert set(re.findall(r"`([\d.]+)\+torch", (ROOT / page).read_text())) == {version}


QUICK = ("export ", "python -m cann_cpu ", "python -m custom_pypto new ", "source $", "CANN_CPU=0 ")
"""How commands of the README begin that take seconds. CI runs the builds, and other tests the rest."""


def test_the_commands_of_the_readme_run(tmp_path):
    blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    commands = [line.partition("  #")[0].strip() for line in "".join(blocks).splitlines()]
    quick = [command for command in commands if command.startswith(QUICK)]
    assert len(quick) > 5
    shutil.copytree(Path(custom_pypto.__path__[0]) / "authoring" / "templates" / "project", tmp_path / "my_ops")
    (tmp_path / "my_ops" / "script.py").touch()
    subprocess.run(["bash", "-e", "-c", "\n".join(quick)], cwd=tmp_path / "my_ops", check=True)
    jobs = re.findall(r"^  (\w+)\)$", (ROOT / "run.sh").read_text(), flags=re.MULTILINE)
    assert {command.split()[2] for command in commands if re.match(r"bash run\.sh \w", command)} <= set(jobs)
