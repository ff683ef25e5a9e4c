// Times as people say them, keys, light and dark, and whether the page is live. Everything else is HTML.
"use strict";

(() => {
  const root = document.documentElement;

  // Light or dark: as the system says, unless somebody has chosen.
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  if (["light", "dark"].includes(chosen())) root.dataset.theme = chosen();

  function toggleTheme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it is forgotten with the page */ }
  }

  // Times.
  function said(seconds) {
    const ahead = seconds < 0, span = Math.abs(seconds);
    if (span < 1) return "now";
    const text = span < 100 ? `${Math.floor(span)} s`
      : span < 5400 ? `${Math.round(span / 60)} min`
      : span < 129600 ? `${Math.round(span / 3600)} h` : `${Math.round(span / 86400)} d`;
    return ahead ? `in ${text}` : `${text} ago`;
  }

  function tellTimes() {
    const now = Date.now();
    for (const one of document.querySelectorAll("time[datetime]")) {
      const text = said((now - Date.parse(one.dateTime)) / 1000);
      if (one.textContent !== text) one.textContent = text;
    }
  }

  function tellTitle() {
    const title = document.querySelector("[data-title]")?.dataset.title;
    if (title) document.title = `${title} · windowbox`;
  }

  // Whether updates come.
  function tellLive(state) {
    const live = document.getElementById("live");
    if (live && live.textContent !== state) { live.textContent = state; live.dataset.state = state; }
  }

  // htmx gives up if the first connection is refused, and waits longer and longer after others.
  const AGAIN = 10000;

  function connectAgain(observer) {
    const view = document.getElementById("view");
    if (document.hidden || document.getElementById("live").textContent === "live") return;
    const anew = view.cloneNode(true);
    anew.removeAttribute("data-htmx-powered");
    view.replaceWith(anew);
    observer.observe(anew, { childList: true, subtree: true });
    htmx.process(anew);
  }

  // Keys.
  let gone = 0;

  function step(by) {
    const links = [...document.querySelectorAll("[data-row] a")];
    const rows = links.filter((link, at) => at === 0 || link.closest("[data-row]") !== links[at - 1].closest("[data-row]"));
    const here = rows.findIndex((link) => link.closest("[data-row]").contains(document.activeElement));
    rows[Math.min(Math.max(here + by, 0), rows.length - 1)]?.focus();
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest?.("input, textarea, select");
    if (typing) { if (event.key === "Escape") typing.blur(); return; }
    if (event.key === "g") { gone = Date.now(); return; }
    if (Date.now() - gone < 1500) {
      gone = 0;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "/") { event.preventDefault(); document.getElementById("find")?.focus(); }
    if (event.key === "j") step(1);
    if (event.key === "k") step(-1);
    if (event.key === "?") document.getElementById("help")?.showModal();
  }

  document.addEventListener("DOMContentLoaded", () => {
    tellTimes();
    tellTitle();
    setInterval(tellTimes, 1000);
    document.addEventListener("keydown", press);
    document.getElementById("theme")?.addEventListener("click", toggleTheme);
    document.getElementById("keys")?.addEventListener("click", () => document.getElementById("help").showModal());
    const view = document.getElementById("view");
    if (!view) return;
    const observer = new MutationObserver(() => { tellTimes(); tellTitle(); });
    observer.observe(view, { childList: true, subtree: true });
    setInterval(() => connectAgain(observer), AGAIN);
    document.addEventListener("htmx:sse:after:connection", () => tellLive("live"));
    document.addEventListener("htmx:sse:close", () => tellLive("not live"));
    document.addEventListener("htmx:sse:error", (event) => {
      tellLive("connecting");
      if (event.detail?.status === 401) location.reload();
    });
  });
})();
