"""The look of all pages: one style sheet."""

LIGHT = {
    "paper": "#ffffff",
    "card": "#f1f5fa",
    "ink": "#1a1a1a",
    "soft": "#444444",
    "link": "#1b4f8a",
    "rule": "#cccccc",
    "edge": "#6b7075",
    "mark": "#123f73",
    "span": "#6f97c4",
}
DARK = {
    "paper": "#14171b",
    "card": "#1f252c",
    "ink": "#e8e8e4",
    "soft": "#b9bec3",
    "link": "#93c0f7",
    "rule": "#3d444b",
    "edge": "#8b9299",
    "mark": "#d5e7ff",
    "span": "#4d7fb5",
}
"""Colours by use: ink, soft and link for text, paper and card for backgrounds, mark and span for drawings."""


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


STYLE = f"""
:root {{ color-scheme: light dark; {_variables(LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }}
  img {{ background: #fff; padding: .5rem; border-radius: .4rem; }} }}
*, ::before, ::after {{ box-sizing: border-box; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.7rem; line-height: 1.4; }} h2 {{ font-size: 1.25rem; margin-top: 2.2rem; }}
h3 {{ font-size: 1.05rem; }} h1, h2, h3, p, li {{ overflow-wrap: break-word; }}
p, li {{ max-width: 46rem; }} p.lead {{ font-size: 1.1rem; }}
a {{ color: var(--link); }} p.note, figcaption, caption, footer {{ color: var(--soft); font-size: .92rem; }}
code {{ font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }}
code span {{ display: inline-block; max-width: 100%; }}
ul {{ padding-left: 1.3rem; }} li {{ margin: .3rem 0; }}
nav ul {{ padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }}
.card {{ background: var(--card); border-left: .3rem solid var(--edge); padding: .1rem 1rem; margin: 1rem 0; }}
.card p, .card li {{ max-width: none; }}
div.wide {{ overflow-x: auto; margin: 1rem 0; }}
:focus-visible {{ outline: 2px solid var(--link); outline-offset: 2px; }}
table {{ border-collapse: collapse; font-size: .92rem; }}
table.pairs {{ margin: 1rem 0; }}
caption {{ text-align: left; padding-bottom: .4rem; }}
caption span {{ display: block; width: fit-content; max-width: min(46rem, 100vw - 2rem); position: sticky; left: 0; }}
th, td {{ padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; }}
thead th {{ border-bottom: 2px solid var(--edge); vertical-align: bottom; }}
.wide tbody th {{ min-width: 5.5rem; max-width: 20rem; overflow-wrap: break-word; }}
.pairs th {{ min-width: 6.5rem; font-weight: 600; }} .pairs td {{ overflow-wrap: anywhere; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
td.number {{ white-space: nowrap; }}
figure {{ margin: 1.5rem 0 2.5rem; break-inside: avoid; }} img {{ max-width: 100%; height: auto; }}
details {{ margin: 1rem 0; }} summary {{ cursor: pointer; color: var(--link); }}
svg {{ display: block; overflow: visible; forced-color-adjust: none; }}
svg path {{ fill: none; vector-effect: non-scaling-stroke; }}
svg .span {{ stroke: var(--span); stroke-width: 7; }} svg .box {{ fill: var(--span); }}
svg .mark {{ stroke: var(--mark); stroke-width: 3; }} svg .line {{ stroke: var(--rule); stroke-width: 1; }}
svg.strip {{ width: 100%; min-width: 9rem; height: 1.4rem; border-left: 1px solid var(--edge); }}
@media screen and (max-width: 40rem) {{ svg.strip {{ min-width: 6rem; }}
  td:has(> .strip), th:has(> .ends) {{ position: sticky; right: 0; padding: .25rem 0 .25rem .5rem;
    background: var(--paper); }} }}
th .ends {{ display: flex; justify-content: space-between; gap: 1rem; font-weight: normal; white-space: nowrap; }}
.plot {{ display: grid; grid-template: 16rem 1.8rem / 3.6rem 1fr; margin: .8rem 1rem .5rem 0; max-width: 60rem;
  font-size: .85rem; line-height: 1; color: var(--soft); }}
.plot svg {{ width: 100%; height: 100%; border-left: 1px solid var(--edge); border-bottom: 1px solid var(--edge); }}
.plot .across, .plot .up {{ position: relative; }} .plot .across {{ grid-column: 2; }}
.plot .up span {{ position: absolute; right: .5rem; transform: translateY(50%); white-space: nowrap; }}
.plot .across span {{ position: absolute; top: .5rem; transform: translateX(-50%); white-space: nowrap; }}
@media print {{ body {{ font-size: 10pt; margin: 0; max-width: none; }} h2 {{ break-after: avoid; }}
  table {{ break-inside: avoid; }} div.wide {{ overflow: visible; }} nav {{ display: none; }}
  details::details-content {{ content-visibility: visible; block-size: auto; }}
  svg, .card {{ print-color-adjust: exact; }} }}
@page {{ margin: 1.5cm; }}
"""
