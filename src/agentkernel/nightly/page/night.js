"use strict";
// Tables that sort and filter. Without this script the page shows everything in the order given.
(() => {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const views = new Map();

  function numberOf(cell) {
    const text = cell.dataset.sort;
    return text === undefined ? NaN : Number(text);
  }

  function makeView(table) {
    const section = table.closest("section");
    const view = {
      id: table.dataset.table,
      table,
      tools: section.querySelector(".tools"),
      filter: section.querySelector(".filter"),
      pick: section.querySelector(".sort"),
      shown: section.querySelector(".shown"),
      nothing: section.querySelector(".nothing"),
      heads: [...table.tHead.rows[0].cells],
      rows: [...table.tBodies[0].rows],
      key: "",
      order: "",
    };
    view.tools.hidden = false;
    view.heads.forEach((head) =>
      head.querySelector("button").addEventListener("click", () => {
        sortBy(view, head.dataset.key, view.key === head.dataset.key ? flip(view.order) : "");
        remember(view);
      }),
    );
    view.filter.addEventListener("input", () => {
      filterBy(view, view.filter.value);
      remember(view);
    });
    view.pick.addEventListener("change", () => {
      sortBy(view, view.pick.value, "");
      remember(view);
    });
    return view;
  }

  function flip(order) {
    return order === "desc" ? "asc" : "desc";
  }

  // Numbers begin with the largest, words with A; what has no value comes last either way.
  function sortBy(view, key, order) {
    const head =
      view.heads.find((item) => item.dataset.key === key) ??
      view.heads.find((item) => item.dataset.key === `estimated-${key}`);
    const place = view.heads.indexOf(head);
    view.key = head ? head.dataset.key : "";
    view.order = head ? order || (head.classList.contains("num") ? "desc" : "asc") : "";
    const numeric = head?.classList.contains("num");
    const sign = view.order === "desc" ? -1 : 1;
    const sorted = [...view.rows];
    if (head) {
      sorted.sort((first, second) => {
        const [a, b] = [first.cells[place], second.cells[place]];
        if (numeric) {
          const [x, y] = [numberOf(a), numberOf(b)];
          return Number.isNaN(x) || Number.isNaN(y)
            ? Number.isNaN(x) - Number.isNaN(y)
            : sign * (x - y);
        }
        const [x, y] = [a.dataset.sort ?? "", b.dataset.sort ?? ""];
        return !x || !y ? !x - !y : sign * collator.compare(x, y);
      });
    }
    view.table.tBodies[0].append(...sorted);
    view.pick.value = view.key;
    view.heads.forEach((item) => {
      const state = item === head ? (sign < 0 ? "descending" : "ascending") : "none";
      item.setAttribute("aria-sort", state);
    });
  }

  function filterBy(view, text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of view.rows) {
      const content = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => content.includes(word));
      count += row.hidden ? 0 : 1;
    }
    const total = view.rows.length;
    const noun = view.shown.dataset.noun + (total === 1 ? "" : "s");
    view.shown.textContent = count === total ? `${total} ${noun}` : `${count} of ${total} ${noun}`;
    view.nothing.hidden = count > 0;
    view.filter.value = text;
  }

  // The address holds what is seen: #sort=speedup&filter=bert, for another table &table=regions.
  function remember(view) {
    const words = new URLSearchParams();
    if (view.id !== first().id) words.set("table", view.id);
    if (view.key) words.set("sort", view.key);
    if (view.key) words.set("order", view.order);
    if (view.filter.value) words.set("filter", view.filter.value);
    history.replaceState(null, "", `#${words}`);
  }

  function first() {
    return views.values().next().value;
  }

  function follow() {
    const hash = location.hash.slice(1);
    if (/(^|&)(sort|filter|table)=/.test(hash)) {
      const words = new URLSearchParams(hash);
      const view = views.get(words.get("table")) ?? first();
      if (!view) return;
      sortBy(view, words.get("sort") ?? "", words.get("order") ?? "");
      filterBy(view, words.get("filter") ?? "");
    } else if (hash) {
      open(document.getElementById(decodeURIComponent(hash)));
    }
  }

  // What a link leads to must be seen: its fold is opened, a filter that hides it taken away.
  function open(target) {
    if (!target) return;
    if (target.matches("details")) target.open = true;
    const view = views.get(target.closest("section")?.id);
    if (view && target.hidden) filterBy(view, "");
    target.scrollIntoView({ block: "start" });
  }

  document.querySelectorAll("table[data-table]").forEach((table) => {
    const view = makeView(table);
    views.set(view.id, view);
  });
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.fold:not([open])")];
    opened.forEach((item) => (item.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((item) => (item.open = false)));
  addEventListener("hashchange", follow);
  follow();
})();
