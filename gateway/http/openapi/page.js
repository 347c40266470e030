"use strict";
/* Shows openapi.json. Everything from the document goes in as text, never as markup. */

/* An element; children are elements or text. */
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function section(title, ...children) {
  return children.length ? [make("h3", {}, title), ...children] : [];
}

function nameOf(reference) {
  return reference.split("/").pop();
}

/* A schema in a few words. */
function brief(schema) {
  if (schema.$ref) return nameOf(schema.$ref);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const options = schema.anyOf || schema.oneOf || schema.allOf;
  if (options) return options.map(brief).join(schema.allOf ? " & " : " | ");
  if (schema.type === "array") return `${brief(schema.items || {})}[]`;
  const bounds = ["minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "pattern", "format"]
    .filter((key) => schema[key] !== undefined)
    .map((key) => `${key} ${schema[key]}`);
  return [schema.type || (schema.properties ? "object" : "any"), ...bounds].join(", ");
}

function schemaLink(schema) {
  const target = schema.$ref || ((schema.allOf || []).find((part) => part.$ref) || {}).$ref;
  const code = make("code", {}, brief(schema));
  return target ? make("a", { href: `#schema-${nameOf(target)}` }, code) : code;
}

function table(columns, rows) {
  const head = make("tr", {}, ...columns.map((column) => make("th", { scope: "col" }, column)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

function parameterRow(parameter) {
  const json = (parameter.content || {})["application/json"];
  const name = make("code", {}, parameter.name + (parameter.required ? " *" : ""));
  const kind = make("code", {}, brief(parameter.schema || json.schema) + (json ? " as JSON" : ""));
  return [name, parameter.in, kind, parameter.description || ""];
}

function contents(content) {
  return Object.entries(content || {}).flatMap(([type, media]) => [
    make("p", {}, make("code", {}, type), " ", schemaLink(media.schema || {})),
    media.example ? make("pre", { tabIndex: 0 }, JSON.stringify(media.example, null, 2)) : null,
  ]).filter((part) => part !== null);
}

function response([status, answer]) {
  const headers = Object.entries(answer.headers || {}).map(([name, header]) => [
    make("code", {}, name + (header.required ? " *" : "")), make("code", {}, brief(header.schema)), header.description,
  ]);
  return make("details", {},
    make("summary", {}, make("code", { className: status < "400" ? "get" : "bad" }, status), ` ${answer.description}`),
    ...contents(answer.content),
    ...(headers.length ? section("Headers", table(["name", "kind", "meaning"], headers)) : []));
}

function operation(path, method, described) {
  const rows = (described.parameters || []).map(parameterRow);
  const summary = make("summary", {},
    make("span", { className: `method ${method}` }, method), make("code", {}, path), ` ${described.summary}`);
  const element = make("details", { id: described.operationId, className: "operation" }, summary,
    described.description ? make("p", {}, described.description) : null,
    ...(rows.length ? section("Parameters", table(["name", "in", "kind", "meaning"], rows)) : []),
    ...(described.requestBody ? section("Body", ...contents(described.requestBody.content)) : []),
    ...section("Answers", ...Object.entries(described.responses).map(response)));
  element.dataset.words = JSON.stringify([path, method, described]).toLowerCase();
  return element;
}

function schema([name, described]) {
  const required = new Set(described.required || []);
  const rows = Object.entries(described.properties || {}).map(([member, inner]) => [
    make("code", {}, member + (required.has(member) ? " *" : "")), schemaLink(inner), inner.description || "",
  ]);
  return make("details", { id: `schema-${name}`, className: "schema" },
    make("summary", {}, make("code", {}, name)),
    described.description ? make("p", {}, described.description) : null,
    rows.length ? table(["member", "kind", "meaning"], rows) : make("p", {}, make("code", {}, brief(described))));
}

function show(api) {
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("about").textContent = api.info.description;
  document.getElementById("operations").append(make("h2", {}, "Operations"),
    ...Object.entries(api.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, described]) => operation(path, method, described))));
  document.getElementById("schemas").append(make("h2", {}, "Schemas"),
    ...Object.entries(api.components.schemas).map(schema));
  document.getElementById("state").hidden = true;
  openTarget();
}

/* The part that the address names is opened, also when a link inside the page was followed. */
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.querySelector("summary").focus();
  }
}

function filter(event) {
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const element of document.querySelectorAll(".operation")) {
    element.hidden = !words.every((word) => element.dataset.words.includes(word));
  }
}

function toggle(event) {
  const open = event.target.getAttribute("aria-expanded") !== "true";
  for (const element of document.querySelectorAll(".operation, .schema")) element.open = open;
  event.target.setAttribute("aria-expanded", String(open));
  event.target.textContent = open ? "Close all" : "Open all";
}

/* Next to this page, also behind a prefix, and with a slash at the end of this page's address. */
function addressOfDocument() {
  return new URL("openapi.json", location.origin + location.pathname.replace(/\/+$/, ""));
}

async function load() {
  for (const link of document.querySelectorAll('a[href="openapi.json"]')) link.href = addressOfDocument();
  document.getElementById("filter").addEventListener("input", filter);
  document.getElementById("toggle").addEventListener("click", toggle);
  addEventListener("hashchange", openTarget);
  try {
    const answer = await fetch(addressOfDocument());
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    document.getElementById("state").textContent = `The document could not be loaded: ${error.message}`;
  }
}

load();
