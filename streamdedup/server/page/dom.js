// Elements. All text goes through textContent: names come from strangers.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  return built(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return built(document.createElementNS(SVG, name), attributes, children);
}

function built(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
  node.append(...children);
  nameRole(node);
  return node;
}

const ROLES = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };

// A table that is laid out as cards stays a table for a screen reader.
export function nameRole(node) {
  const role = node.tagName === "TH" ? (node.scope === "row" ? "rowheader" : "columnheader") : ROLES[node.tagName];
  if (role) node.setAttribute("role", role);
}

// Writes only what has changed, so that a selection and a screen reader stay where they are.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function set(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Makes the children of `parent` those of `items`, in their order: a node a key, made once. The focus stays.
export function keyed(parent, items, key, create, update) {
  const known = (parent.known ??= new Map());
  const focus = document.activeElement;
  const left = new Set(known.keys());
  items.forEach((item, place) => {
    const name = key(item);
    left.delete(name);
    if (!known.has(name)) known.set(name, create(item));
    const node = known.get(name);
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
    update(node, item);
  });
  for (const name of left) {
    known.get(name).remove();
    known.delete(name);
  }
  if (focus !== document.activeElement && parent.contains(focus)) focus.focus({ preventScroll: true });
}

// Names and values, as a list of definitions.
export function pairs(list, facts) {
  keyed(list, facts, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, name), make("dd")),
    (node, [, value]) => put(node.lastChild, value));
}
