"""Recorded outputs of the command line: the files that command lines read, what is recorded, and how it is compared.

Nothing here is imported from rrjax, so that the records outlast a change of its modules.
"""

import difflib
import functools
import importlib.metadata
import itertools
import json
import math
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import numpy as np

FOLDER = Path(__file__).parent / "cli" / "golden"
VERSIONS = FOLDER / "versions.json"

CITIES = ("Rome", "New York", "Zürich", "a,b", "Lima", "Oslo")
SHARES = (0.4, 0.25, 0.15, 0.1, 0.07, 0.03)


def reported(rng, values, size, epsilon):
    """Values in {0, …, size − 1} by randomized response."""
    p = np.exp(epsilon) / (np.exp(epsilon) + size - 1)
    others = (values + rng.integers(1, size, len(values))) % size
    return np.where(rng.random(len(values)) < p, values, others)


def people(number=1500):
    """True values of people: a city, visits, smoking and drinking, which go together, a coin, and public columns."""
    rng = np.random.default_rng(43)
    region = rng.integers(0, 2, number)
    age = rng.integers(18, 80, number)
    smokes = (rng.random(number) < 0.2 + 0.005 * (age - 18)).astype(int)
    return {
        "city": rng.choice(6, number, p=SHARES),
        "visits": np.minimum(rng.poisson(1 + region + smokes), 5),
        "smokes": smokes,
        "drinks": np.where(rng.random(number) < 0.6, smokes, rng.integers(0, 2, number)),
        "coin": rng.integers(0, 2, number),
        "age": age,
        "region": np.array(["north", "south"])[region],
        "weight": np.round(rng.uniform(0.5, 2, number), 3),
        "house": np.arange(number) // 3,
        "user": [f"u{place}" for place in range(number)],
    }


def texts(values, labels):
    return [labels[each] for each in values]


def table(columns):
    """A CSV of columns by name."""

    def cell(value):
        text = str(value)
        return f'"{text}"' if "," in text else text

    rows = [",".join(columns), *(",".join(map(cell, row)) for row in zip(*columns.values(), strict=True))]
    return "\n".join(rows) + "\n"


def of_reports(epsilon=1.0, seed=1):
    """A CSV of reports of cities and visits by randomized response, and of public columns."""
    rng, true = np.random.default_rng(seed), people()
    return table(
        {
            "city": texts(reported(rng, true["city"], 6, epsilon), CITIES),
            "visits": reported(rng, true["visits"], 6, epsilon),
            "smokes": texts(reported(rng, true["smokes"], 2, epsilon), ("no", "yes")),
            **{name: true[name] for name in ("age", "region", "weight", "house")},
        }
    )


def of_values():
    true = people()
    named = {"city": CITIES, "smokes": ("no", "yes"), "drinks": ("no", "yes")}
    return table({name: texts(each, named[name]) if name in named else each for name, each in true.items()})


def missing():
    """Reports of five cities, of which ten are the text NA and two are empty."""
    rng, true = np.random.default_rng(3), people(480)
    reports = reported(rng, true["city"], 6, 1.0)
    kept = reports < 5
    cities = np.array(CITIES, object)[reports[kept]]
    cities[5:205:20], cities[[3, 8]] = "NA", ""
    return table({"city": cities, "region": true["region"][kept]})


def design(name):
    """A CSV of 900 yes-no answers to a survey design; 30 % hold the attribute, more of them in the north."""
    rng = np.random.default_rng(len(name))
    north = rng.random(900) < 0.5
    true = rng.random(900) < np.where(north, 0.4, 0.2)
    yes = {
        "warner": np.where(true, 0.3, 0.7),
        "forced-response": np.where(true, 5 / 6, 1 / 6),
        "unrelated-question": 0.7 * true + 0.3 / 4,
        "crosswise": np.where(true, 0.15, 0.85),
        "kuk": np.where(true, 0.8, 0.2),
    }[name]
    said = np.where(rng.random(900) < yes, "yes", "no")
    return table({"answer": said, "region": np.where(north, "north", "south")})


def samples(first, second):
    """A CSV of the yes-no answers of two samples, of which the numbers of yes and no are given."""
    said = [answer for yes, no in (first, second) for answer in ["yes"] * yes + ["no"] * no]
    return table({"die": ["a"] * sum(first) + ["b"] * sum(second), "said": said})


def cards():
    """A CSV of the answers of two samples, and the ages of who gave them; a fifth do not follow the rule."""
    rng = np.random.default_rng(8)
    age, die = rng.integers(20, 70, 2000), np.repeat(["a", "b"], 1000)
    share = 1 / (1 + np.exp(1.5 - 0.03 * age))
    yes = 0.8 * (share + (1 - share) * np.where(die == "a", 0.25, 0.75))
    return table({"die": die, "said": np.where(rng.random(2000) < yes, "yes", "no"), "age": age})


def day(number):
    """A CSV of the apps of 1,000 users on one of three days; on the last one, 150 have another."""
    apps = np.repeat([0, 1, 2], (500, 300, 200))
    if number == 3:
        apps[:150] = 2
    order = np.random.default_rng(number).permutation(1000)
    return table({"id": [f"u{place}" for place in order], "app": texts(apps[order], ("maps", "news", "chat"))})


def numbers(integers=False):
    values = 100 * np.random.default_rng(5).beta(2, 3, 1500)
    return table({"age": (values / 10).astype(int) if integers else np.round(values, 1)})


def lines(*labels):
    return "".join(f"{label}\n" for label in labels)


def baskets():
    """Transactions of one to three items of six."""
    drawn = [np.random.default_rng(place).permutation(6)[: 1 + place % 3] for place in range(300)]
    return lines(*(" ".join(map(str, each)) for each in drawn))


ROUND = (
    "randomize day{0}.csv --column app --user id --domain apps.txt --mechanism longitudinal-randomized-response "
    "--epsilon 4 --first-epsilon 2 --memo memo.parquet --seed 5 --out round-{0}.parquet"
)
DICE = "--mechanism forced-response --parameter truth=2/3 --parameter forced=1/2,1/2"
OF_SMOKING = "randomize values.csv --column smokes --domain yesno.txt"
PAIRS = f"{OF_SMOKING} --column coin --domain 0:1 --epsilon 3 --seed 1"
OF_CITIES = "randomize values.csv --column city --domain cities.txt --seed 1"
APART = "randomize values.csv --apart --epsilon 6 --keep age --seed 1"
THREE = f"{APART} --column smokes --column drinks --column coin --domain yesno.txt --domain yesno.txt --domain 0:1"
WAVE = "randomize ages.csv --column age --mechanism square-wave --range 0,100 --bins 10 --epsilon 2 --seed 1"
"""The beginnings of command lines that make files of reports."""

INPUTS = {
    "cities.txt": lambda: lines(*CITIES),
    "yesno.txt": lambda: lines("yes", "no"),
    "apps.txt": lambda: lines("maps", "news", "chat"),
    "values.csv": of_values,
    "reports.csv": of_reports,
    "later.csv": lambda: of_reports(seed=2),
    "tiny.csv": lambda: table({"city": ["Rome", "Oslo", "Rome"]}),
    "missing.csv": missing,
    "counts.csv": lambda: table({"city": CITIES, "n": (430, 330, 240, 200, 170, 130)}),
    "contradicted.csv": lambda: table({"visits": range(6), "n": (900, 600, 0, 0, 0, 0)}),
    "census.csv": lambda: table({"city": CITIES, "people": (40, 20, 20, 10, 5, 5)}),
    "population.csv": lambda: table({"region": ("south", "north"), "people": (100, 300)}),
    "baskets.dat": baskets,
    "design.toml": lambda: 'mechanism = "forced-response"\ntruth = "2/3"\nforced = ["1/2", "1/2"]\n',
    **{
        f"{name}.csv": functools.partial(design, name)
        for name in ("warner", "forced-response", "unrelated-question", "crosswise", "kuk")
    },
    "cheating.csv": lambda: samples((400, 600), (550, 450)),
    "cards.csv": cards,
    "exchanged.csv": lambda: samples((550, 450), (400, 600)),
    "anchor.csv": lambda: samples((1427, 573), (1541, 459)),
    "unrelated.csv": lambda: samples((1040, 2960), (1360, 2640)),
    **{f"day{number}.csv": functools.partial(day, number) for number in (1, 2, 3)},
    "ages.csv": numbers,
    "tens.csv": lambda: numbers(integers=True),
}
"""Files that are written, by name: functions that return their text."""

COMMANDS = {
    "city.parquet": [f"{OF_CITIES} --epsilon 1 --keep region,weight,age --out city.parquet"],
    "simulated.parquet": [f"{OF_CITIES} --epsilon 1 --keep region,weight,age --out simulated.parquet"],
    "low.parquet": [f"{OF_CITIES} --epsilon 0.5 --out low.parquet"],
    "oue.parquet": [f"{OF_CITIES} --epsilon 2 --mechanism oue --keep region,age --out oue.parquet"],
    "subset.parquet": [f"{OF_CITIES} --epsilon 1 --mechanism subset-selection --keep region,age --out subset.parquet"],
    # In the table of estimators no share of the maximum is zero up to rounding, and no two pairs of columns are tied.
    "clear.parquet": [f"{OF_CITIES} --epsilon 3 --mechanism subset-selection --out clear.parquet"],
    "related.parquet": [
        f"{APART} --column smokes --column drinks --column visits --domain yesno.txt --domain yesno.txt --domain 0:5 "
        "--out related.parquet"
    ],
    "hadamard.parquet": [f"{OF_CITIES} --epsilon 1 --mechanism hadamard-response --out hadamard.parquet"],
    "dice.parquet": [f"{OF_SMOKING} {DICE} --seed 1 --out dice.parquet"],
    "pairs.parquet": [f"{PAIRS} --out pairs.parquet"],
    "apart.parquet": [f"{THREE} --out apart.parquet"],
    "sampled.parquet": [f"{THREE} --columns-per-user 2 --out sampled.parquet"],
    "levels.parquet": [f"{APART} --column smokes --column visits --domain yesno.txt --domain 0:5 --out levels.parquet"],
    "wave.parquet": [f"{WAVE} --out wave.parquet"],
    "geometric.parquet": [
        "randomize tens.csv --column age --mechanism geometric --domain 0:9 --epsilon 1 --seed 1 "
        "--out geometric.parquet"
    ],
    **{
        name: [ROUND.format(day) for day in (1, 2, 3)]
        for name in ("round-1.parquet", "round-2.parquet", "round-3.parquet", "memo.parquet")
    },
}
"""Files that command lines make, by name."""
SIMULATED = {"simulated.parquet", "wave.parquet", "hadamard.parquet", "sampled.parquet", "pairs.parquet"}
"""Files that say that a seed made them; the others are turned into files of a real collection."""

_made = {}


def write_inputs(line, invoke):
    """Writes the files that a command line names into the present folder, and what these are made of."""
    for name in dict.fromkeys(shlex.split(line)):
        if name in INPUTS:
            Path(name).write_text(INPUTS[name](), encoding="utf-8")
        elif name in COMMANDS and Path(name) not in outputs(line):
            if name not in _made:
                _make(name, invoke)
            Path(name).write_bytes(_made[name])


def _make(name, invoke):
    before = set(Path().iterdir())
    for line in COMMANDS[name]:
        for word in line.split():
            if word in INPUTS:
                Path(word).write_text(INPUTS[word](), encoding="utf-8")
        code, _, error = invoke(*shlex.split(line))
        assert code == 0, error
    for path in set(Path().iterdir()) - before:
        if path.suffix == ".parquet":
            if path.name in COMMANDS and path.name not in SIMULATED:
                collected(path.name)
            _made[path.name] = path.read_bytes()
        path.unlink()


def collected(name):
    """Turns a file that a seed made into a file of a real collection."""
    connection = duckdb.connect()
    ((key, text),) = connection.execute(
        "SELECT decode(key), decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) LIKE 'rrjax%'", [name]
    ).fetchall()
    assert '"simulated": true' in text
    text = text.replace('"simulated": true', '"simulated": false')
    text = re.sub(r', "sum": "[0-9a-f]+"', "", text)  # of a memo, which is another one now
    connection.execute(f"COPY (FROM '{name}') TO '{name}.new' (FORMAT parquet, KV_METADATA {{{key}: ?}})", [text])
    Path(f"{name}.new").replace(name)


# What is recorded

VERSION = re.compile(r"(?<![\w.])\d+\.\d+\.\d+(?:\.\w+)?(?![\w.]*\d)")
CHANGING = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),  # colours, which GITHUB_ACTIONS turns on
    (re.compile(r".* s so far\)\n"), ""),  # progress, on a slow machine
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?: [A-Z+\-0-9]+)?"), "DATE"),
    (VERSION, "VERSION"),
    (re.compile(r"─{4,}"), "───"),  # of help
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]
DRAWN = re.compile(r"\b\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


def constant(text, folder, *, drawn=False):
    """A text without what another day, machine or version changes; without numbers where they are drawn anew."""
    text = text.replace(str(folder), "FOLDER").replace("\N{NO-BREAK SPACE}", " ")
    for pattern, instead in CHANGING:
        text = pattern.sub(instead, text)
    return DRAWN.sub("0", text).strip("\n") if drawn else text.strip("\n")


OF_ROUNDING = ("dual_infeasibility", "gap", "l1_bound", "simplex_violation", "stationarity")
"""Fields of a certificate, which hold rounding alone where they are small."""


def rounded(value, name=""):
    """A JSON value with numbers of six digits."""
    if isinstance(value, dict):
        return {key: rounded(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if name in OF_ROUNDING and value is not None and value < 1e-4:
        return "below 1e-4"
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def of_json(text):
    """A JSON object: its fields by name, one on a line; an element of a list that is an object has its own line."""

    def short(value):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)

    lines = []
    for key, value in sorted(rounded(json.loads(text)).items()):
        if isinstance(value, list) and value and isinstance(value[0], dict | str):
            lines += [f"{short(key)}: [", *(f"  {short(each)}" for each in value), "]"]
        elif isinstance(value, dict):
            lines += [f"{short(key)}: {{", *(f"  {short(name)}: {short(each)}" for name, each in sorted(value.items()))]
            lines.append("}")
        else:
            lines.append(f"{short(key)}: {short(value)}")
    return "\n".join(lines)


def of_table(path, rows=3):
    """The names of the columns and the first rows of a file of results."""
    if path.suffix in (".parquet", ".jsonl"):
        reader = "read_json" if path.suffix == ".jsonl" else "read_parquet"
        found = duckdb.connect().execute(f"FROM {reader}('{path}') LIMIT {rows}")
        names = [name for name, *_ in found.description]
        read = [names, *found.fetchall()]
        separator = ","
    else:
        separator = "\t" if path.suffix == ".tsv" else ","
        read = [line.split(separator) for line in path.read_text(encoding="utf-8").splitlines()[: rows + 1]]

    def short(cell):
        try:
            return str(cell) if re.fullmatch(r"[-+]?\d+", str(cell)) else f"{float(cell):.6g}"
        except (TypeError, ValueError):
            return str(cell)

    return "\n".join(separator.join(map(short, row)) for row in read)


BLOCKS = {
    *("title", "h1", "h2", "h3", "p", "li", "tr", "caption", "figcaption", "summary"),
    *("div", "section", "footer", "nav"),
}


class PageText(HTMLParser):
    """The words of a page: a line for each heading, sentence and row of a table, and what is said of each figure."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.hidden, self.parts = [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in ("style", "script", "svg"):
            self.hidden.append(tag)
        words = attributes.get("alt") or (attributes.get("aria-label") if attributes.get("role") == "img" else "")
        if words:
            self.parts.append(f"\n[figure: {words}]\n")
        if tag in BLOCKS:
            self.parts.append("\n" + {"h1": "# ", "h2": "## ", "h3": "### ", "li": "* "}.get(tag, ""))
        if tag in ("td", "th", "span"):
            self.parts.append(" " if tag == "span" else " | ")

    def handle_endtag(self, tag):
        if self.hidden and self.hidden[-1] == tag:
            self.hidden.pop()
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(re.sub(r"[ \t\n]+", " ", data))

    @property
    def text(self):
        found = (re.sub(r" {2,}", " ", line).strip() for line in "".join(self.parts).split("\n"))
        return "\n".join(line for line in found if line and line != "*")


def outputs(line):
    """The files that a command line writes."""
    words = shlex.split(line)
    return [Path(after) for word, after in itertools.pairwise(words) if word == "--out"]


def record(line, invoke, enter, *, as_json):
    """What a command line says and writes, as one text; then what it says with `--json` in place of `--explain`.

    Both run in empty folders of their own, made and entered by `enter(name)`.
    """

    def run(place, line):
        folder = enter(place)
        write_inputs(line, invoke)
        code, out, error = invoke(*shlex.split(line))
        drawn = line.startswith("audit")  # by secure random numbers
        return code, constant(out, folder, drawn=drawn), constant(error, folder)

    code, out, error = run("text", line)
    parts = [f"$ rrjax {line}", f"exit code {code}"]
    parts += [f"\n==== {name}\n{text}" for name, text in (("stdout", out), ("stderr", error)) if text]
    for path in outputs(line):
        if path.exists():
            text = PageText(path.read_text(encoding="utf-8")).text if path.suffix == ".html" else of_table(path)
            parts.append(f"\n==== {path}\n{constant(text, Path.cwd())}")
    if as_json and code == 0:
        code, out, error = run("json", f"{line.replace(' --explain', '')} --json")
        parts.append(f"\n==== --json, exit code {code}\n{of_json(out)}")
        if error:
            parts.append(f"\n==== stderr of --json\n{error}")
    return "\n".join(parts) + "\n"


# How it is compared

NUMBER = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+")


def digits(text):
    """How many significant digits a number has, and the size of the last one."""
    mantissa, _, exponent = text.partition("e")
    whole, _, decimals = mantissa.partition(".")
    return len((whole + decimals).lstrip("0")), 10.0 ** (int(exponent or 0) - len(decimals))


def near(one, other):
    """Whether two numbers differ by no more than another processor's rounding.

    The last of three digits may differ. Numbers of more than four digits are those of JSON and files, in float32 and
    from iterations, which may stop a step later: 5e-4 of a share, 1e-4 of what is above one. A number of one digit
    below 1e-5 bounds such an error.
    """
    (number, unit), (others, other_unit) = digits(one), digits(other)
    number = max(number, others)
    a, b = float(one), float(other)
    if number < 3:
        return a == b or max(a, b) < 1e-5
    relative = 0 if number < 5 else 5e-4 if a < 1 else 1e-4
    return abs(a - b) <= max(1.01 * min(unit, other_unit), 1e-9, relative * a)


def same(one, other):
    """Whether two lines have the same words, and the same numbers but for rounding."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    return all(map(near, NUMBER.findall(one), NUMBER.findall(other)))


def difference(recorded, found, name):
    """A unified diff from a record to a text, or "" where only the rounding of numbers differs."""
    before, after = recorded.splitlines(), found.splitlines()
    for kind, begin, end, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "replace" and end - begin == last - first:
            after[first:last] = [
                one if same(one, other) else other
                for one, other in zip(before[begin:end], after[first:last], strict=True)
            ]
    return "\n".join(difflib.unified_diff(before, after, f"{name} (recorded)", f"{name} (now)", lineterm=""))


def versions():
    """Versions of the packages that compute and print."""
    return {name: importlib.metadata.version(name) for name in ("jax", "rich", "typer")}
