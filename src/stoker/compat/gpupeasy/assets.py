"""The style and the script of the web page, served by this server; no CDN is used.

The page also works without the script: the browser then reloads it regularly.
"""

from __future__ import annotations

STYLE = """\
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1c2330; --faint: #667085; --line: #e2e6ec;
  --accent: #2f6feb; --good: #1a7f4b; --bad: #c0362c; --busy: #b35c00; --code: #f1f3f6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --card: #1b2029; --text: #e6e9ef; --faint: #98a2b3; --line: #2c3440;
    --accent: #6ea0ff; --good: #4cc38a; --bad: #ff7b72; --busy: #f0a33e; --code: #141920;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
nav { display: flex; gap: 1rem; align-items: center; padding: .7rem 1.5rem;
  background: var(--card); border-bottom: 1px solid var(--line); }
nav .brand { font-weight: 650; font-size: 1.1rem; color: var(--text); margin-right: auto; }
main { max-width: 72rem; margin: 0 auto; padding: 1.25rem 1.5rem 4rem; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
h2 { font-size: 1rem; margin: 1.75rem 0 .6rem; }
.columns { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.5rem; }
@media (max-width: 48rem) { .columns { grid-template-columns: 1fr; } }
.alert { border: 1px solid var(--line); border-left: 4px solid var(--accent);
  background: var(--card); padding: .7rem 1rem; border-radius: 6px; margin: .5rem 0;
  white-space: pre-line;
  overflow-wrap: anywhere; }
.alert.danger { border-left-color: var(--bad); }
.alert.success { border-left-color: var(--good); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  overflow: hidden; }
.card + .card { margin-top: .5rem; }
.row { display: flex; gap: .75rem; align-items: center; padding: .45rem .9rem; min-width: 0; }
.row + .row { border-top: 1px solid var(--line); }
.row > .grow { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.list { max-height: 26rem; overflow-y: auto; }
.id { color: var(--faint); min-width: 2.5rem; font-variant-numeric: tabular-nums; }
.faint { color: var(--faint); }
.idle { color: var(--faint); } .busy { color: var(--busy); font-weight: 600; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
code, pre, textarea { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem 1rem; overflow: auto; max-height: 34rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1.5rem; margin: 0;
  padding: .9rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
form.inline { display: inline-flex; gap: .4rem; align-items: center; margin: 0; }
.actions { display: flex; flex-wrap: wrap; gap: .6rem 1rem; margin: 1rem 0; }
label { display: block; margin: .6rem 0 .25rem; }
form.inline label { margin: 0; }
textarea, input[type=text], input[type=number] { color: inherit; background: var(--code);
  border: 1px solid var(--line); border-radius: 6px; padding: .4rem .6rem; }
textarea { width: 100%; min-height: 8rem; }
input[type=number] { width: 6.5rem; } .wide { width: 100%; }
button { font: inherit; color: var(--text); background: var(--card); cursor: pointer;
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem .8rem; }
button:hover { border-color: var(--accent); }
button.primary { color: #fff; background: #2f6feb; border-color: #2f6feb; margin-top: .6rem; }
button.danger { color: var(--bad); }
"""

SCRIPT = """\
"use strict";
const everyMilliseconds = 2000;
const sections = document.querySelectorAll("[data-from]");

async function refresh() {
  if (document.hidden) return;
  for (const section of sections) {
    // Do not replace a section that the user is about to click or type into.
    if (section.contains(document.activeElement) || section.matches(":hover")) continue;
    try {
      const response = await fetch(section.dataset.from, {headers: {"Accept": "text/html"}});
      if (!response.ok) continue;
      const text = await response.text();
      if (section.dataset.last !== text) {
        const scrolled = section.querySelector(".list")?.scrollTop ?? 0;
        section.innerHTML = text; // the server has escaped all text of users
        section.dataset.last = text;
        const list = section.querySelector(".list");
        if (list) list.scrollTop = scrolled;
      }
    } catch { /* the server is not reachable; try again next time */ }
  }
}

if (sections.length) setInterval(refresh, everyMilliseconds);
"""
