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
