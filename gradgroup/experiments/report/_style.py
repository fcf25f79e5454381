"""How the page of a report looks: light, in the reader's own font, and whole on a phone.

The idea. Text is as wide as is good to read, tables and figures as wide as the page. On a phone
what is too wide to be read is scrolled by itself, the page never; a table of verdicts becomes a
list there, each verdict above its claim.
"""

STYLE = """
:root { color-scheme: light; --line: #dcdcdc; --soft: #555; --shade: #f4f4f4; }
* { box-sizing: border-box; }
body { max-width: 62rem; margin: 2.5rem auto 5rem; padding: 0 1.25rem; background: #fff;
  color: #1a1a1a; font: 16px/1.6 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { margin: 0 0 1rem; font-size: 1.8rem; line-height: 1.2; }
h2 { margin: 3rem 0 1rem; padding-top: 1.2rem; border-top: 1px solid var(--line);
  font-size: 1.35rem; line-height: 1.3; }
h3 { margin: 1.8rem 0 .4rem; font-size: 1.05rem; }
p, ul, figcaption { max-width: 46rem; }
li { margin: .3rem 0; }
a { color: #0b57a4; }
nav a { display: inline-block; margin: 0 1.4rem .3rem 0; }
code { padding: .1em .3em; border-radius: 3px; background: var(--shade); font-size: .9em; }
figure { margin: 1.6rem 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .92rem; }
.scroll { margin: 1rem 0; overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; line-height: 1.5; }
th, td { padding: .45rem 1.4rem .45rem 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #999; font-weight: 600; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict { white-space: nowrap; }
.verdict span { display: inline-block; padding: .05rem .65rem; border-radius: 1rem;
  font-weight: 600; }
.holds span { background: #dff3ea; color: #00573d; }
.partly span { background: #fcefd0; color: #6f4800; }
.not span { background: #fbe3da; color: #8f2700; }
.open span { background: #ececec; color: #444; }
@media (max-width: 44rem) {
  body { margin-top: 1.2rem; padding: 0 1rem; }
  h1 { font-size: 1.55rem; }
  figure svg { width: 42rem; }
  table { font-size: .86rem; }
  th:first-child, td:first-child { position: sticky; left: 0; background: #fff; }
  .verdicts thead { display: none; }
  .verdicts tr { display: block; padding: .9rem 0; border-bottom: 1px solid var(--line); }
  .verdicts td { display: block; padding: .25rem 0; border: 0; }
}
"""
