"""The style sheet of the ladder's page."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1d21; --paper: #fdfdfc; --soft: #5b616b; --faint: #d5d8dc; --wash: #f2f4f5;
  --plus: #e2f3e6; --plus-ink: #10602b; --minus: #fbe6e4; --minus-ink: #8f1f17; --accent: #0a5a94; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #15171a; --soft: #a3aab4; --faint: #3a3f46;
  --wash: #1f2226; --plus: #15301f; --plus-ink: #8fdca6; --minus: #3a1c1a; --minus-ink: #f2a49c; --accent: #7cc0f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: clamp(1.5rem, 4vw, 2.2rem); line-height: 1.2; margin: 0.4em 0 0.2em; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 0.6em; }
section { margin: 40px 0; }
section[id] { border-top: 1px solid var(--faint); padding-top: 28px; }
.lead { font-size: 1.1rem; color: var(--soft); margin: 0; }
.step { color: var(--accent); font-weight: 600; margin-right: 0.35em; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 20px 32px;
  align-items: start; }
figure { margin: 0; }
.three { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 270px), 1fr)); gap: 20px 24px; }
figure svg { width: 100%; height: auto; max-width: 520px; display: block; }
figcaption, .note, footer { color: var(--soft); font-size: 0.9rem; }
dl { margin: 0 0 1em; max-width: 72ch; }
dt { color: var(--soft); font-size: 0.85rem; }
dd { margin: 0 0 0.6em; }
p { max-width: 78ch; }
pre { background: var(--wash); border-radius: 6px; padding: 12px 14px; overflow-x: auto; margin: 0.6em 0 1em;
  font: 13px/1.5 ui-monospace, monospace; }
.formulas { background: var(--wash); border-radius: 6px; padding: 8px 14px; margin: 0.6em 0 1em; }
.formulas p { margin: 4px 0; max-width: none; display: flex; flex-wrap: wrap; gap: 0 1.5em; align-items: baseline; }
.formulas i { color: var(--soft); font-size: 0.88rem; }
code { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
details > summary { cursor: pointer; color: var(--accent); padding: 6px 0; }
details pre { padding: 10px 0; }
details pre span { display: block; padding: 0 14px; min-width: max-content; height: 1.5em; }
.added { background: var(--plus); color: var(--plus-ink); }
.removed { background: var(--minus); color: var(--minus-ink); }
.place { color: var(--soft); }
.scroll { overflow-x: auto; margin-top: 20px; }
table { border-collapse: collapse; font-size: 0.93rem; min-width: 600px; width: 100%; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--faint); vertical-align: baseline; }
th:first-child { text-align: left; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 500; }
tbody th { font-weight: 500; }
.n { white-space: nowrap; font-variant-numeric: tabular-nums; }
.ci { white-space: nowrap; color: var(--soft); font-size: 0.85em; }
a { color: var(--accent); }
@media (max-width: 600px) { table { font-size: 0.8rem; min-width: 500px; } th, td { padding: 5px 6px; }
  th:first-child { white-space: normal; } td .ci { display: block; } }
"""
