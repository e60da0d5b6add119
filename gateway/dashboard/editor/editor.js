// Makes an editor of the text area on the page SQL. Without scripts, or without this one, the text area stays.
// hatch_build.py bundles this module and what it imports into static/editor.js.

import { autocompletion } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { HighlightStyle, bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

// The list of tables may be long: columns are completed for this many tables, and only the names of the others.
const TABLES_WITH_COLUMNS = 2000;

const SPARK = SQLDialect.define({
  backslashEscapes: true,
  caseInsensitiveIdentifiers: true,
  doubleQuotedStrings: true,
  identifierQuotes: "`",
  keywords:
    "all alter analyze and anti as asc between by case cast columns comment compute create cross cube current database " +
    "databases default delete desc describe distinct drop else end escape except exists explain extended first following " +
    "for from full function functions group grouping having history if ilike in inner insert interval into is join last " +
    "lateral left like limit merge minus not null nulls of offset on or order outer over overwrite partition partitioned " +
    "partitions preceding range recursive refresh replace right rlike rollup row rows schema schemas select semi set sets " +
    "show statistics table tables tablesample then timestamp to truncate unbounded union update use using values version " +
    "view views when where window with",
  types: "array bigint binary boolean date decimal double float int map smallint string struct tinyint",
  builtin: "avg coalesce concat count dense_rank extract lower max min nullif rank round row_number substring sum trim upper",
});

// Colours are variables of style.css, which has them for light and dark.
const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--busy)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--note)" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--accent)" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
]);

const theme = EditorView.theme({
  "&": {
    margin: "0.75rem 0",
    color: "var(--ink)",
    backgroundColor: "var(--sheet)",
    border: "1px solid var(--soft)",
    borderRadius: "6px",
    fontSize: "0.9rem",
  },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "2px" },
  ".cm-scroller": { maxHeight: "60vh", overflow: "auto", fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content, .cm-gutter": { minHeight: "15rem" },
  ".cm-content": { padding: "0.7rem 0", caretColor: "var(--ink)" },
  ".cm-gutters": { color: "var(--soft)", backgroundColor: "var(--faint)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "var(--faint)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "transparent", outline: "1px solid var(--accent)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "transparent", outline: "1px solid var(--bad)" },
  ".cm-error": { color: "var(--bad)", textDecoration: "underline wavy", textUnderlineOffset: "0.2em" },
  ".cm-error *": { color: "inherit" },
  ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--sheet)", border: "1px solid var(--soft)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "0.15rem 0.6rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { color: "var(--ground)", background: "var(--accent)" },
  ".cm-completionDetail": { marginLeft: "1rem", fontStyle: "normal" },
});

/** Tables by database, as lang-sql wants them; databases begin without tables. */
function emptyCatalog(databases) {
  const catalog = Object.create(null);
  for (const name of databases) catalog[name] = Object.create(null);
  return catalog;
}

/** Reads the columns of all tables. Where that fails, keywords and databases are completed. */
async function readTables(address, catalog) {
  try {
    const reply = await fetch(address);
    if (!reply.ok) return;
    const { tables } = await reply.json();
    tables.forEach((table, number) => {
      const dot = table.name.lastIndexOf(".");
      const database = dot < 0 ? "default" : table.name.slice(0, dot);
      catalog[database] ??= Object.create(null);
      catalog[database][table.name.slice(dot + 1)] =
        number < TABLES_WITH_COLUMNS ? table.columns.map((column) => column.name) : [];
    });
  } catch {
    // the gateway is away; the next page asks again
  }
}

/** Completes the columns of tables whose names stand in the statement. */
function columnSource(catalog, database) {
  return (context) => {
    const word = context.matchBefore(/[\w$]+/);
    if (!word || context.state.sliceDoc(word.from - 1, word.from) === ".") return null;
    const columns = new Map();
    for (const [name] of context.state.doc.toString().toLowerCase().matchAll(/[\w$.]+/g)) {
      const dot = name.lastIndexOf(".");
      const tables = catalog[dot < 0 ? database : name.slice(0, dot)];
      const table = name.slice(dot + 1);
      for (const label of tables?.[table] ?? []) columns.set(label, { label, type: "property", detail: table });
    }
    return { from: word.from, options: [...columns.values()], validFor: /^[\w$]*$/ };
  };
}

/** SQL with completion; tables of the chosen database need no database before them. */
function language(catalog, database) {
  const schema = { ...catalog[database], ...catalog };
  return [
    sql({ dialect: SPARK, schema, upperCaseKeywords: true }),
    SPARK.language.data.of({ autocomplete: columnSource(catalog, database) }),
  ];
}

/** Offset of a line and a column, both from 1; columns are the gateway's, which counts characters, not UTF-16 units. */
function offsetOf(doc, lineNumber, column) {
  const line = doc.line(Math.min(lineNumber, doc.lines));
  return line.from + [...line.text].slice(0, column - 1).join("").length;
}

/** Underlines the word at an error, until it is edited. */
function errorMark(state, offset) {
  const word = state.wordAt(offset) ?? state.doc.lineAt(offset);
  const marks = word.from < word.to ? [Decoration.mark({ class: "cm-error" }).range(word.from, word.to)] : [];
  return StateField.define({
    create: () => Decoration.set(marks),
    update: (decorations, change) => decorations.map(change.changes),
    provide: (field) => EditorView.decorations.from(field),
  });
}

// Chromium writes style attributes where it replaces a selection of several lines; the page's policy refuses those.
const replaceSelection = EditorView.domEventHandlers({
  beforeinput(event, view) {
    if (event.inputType !== "insertText" || event.data === null || view.state.selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

function makeEditor(textarea) {
  const { form, dataset } = textarea;
  const database = form.elements.namedItem("database");
  const catalog = emptyCatalog([...database.options].map((option) => option.value));
  const languageOf = new Compartment();
  const press = (value) => () => {
    form.requestSubmit(form.querySelector(`button[value="${value}"]`));
    return true;
  };
  const view = new EditorView({
    doc: textarea.value,
    extensions: [
      EditorView.cspNonce.of(dataset.styleNonce),
      EditorView.contentAttributes.of({ "aria-label": textarea.labels[0].textContent }),
      EditorView.lineWrapping,
      EditorState.tabSize.of(2),
      lineNumbers(),
      highlightActiveLine(),
      history(),
      bracketMatching(),
      replaceSelection,
      autocompletion({ icons: false }),
      // Tab is bound to nothing: it leads out of the editor.
      keymap.of([
        { key: "Mod-Enter", run: press("run") },
        { key: "Mod-Shift-Enter", run: press("explain") },
        ...historyKeymap,
        ...defaultKeymap,
      ]),
      languageOf.of(language(catalog, database.value)),
      syntaxHighlighting(colours),
      theme,
    ],
  });
  const learnTables = () => view.dispatch({ effects: languageOf.reconfigure(language(catalog, database.value)) });
  if (dataset.errorLine) {
    const anchor = offsetOf(view.state.doc, Number(dataset.errorLine), Number(dataset.errorColumn));
    view.dispatch({ selection: { anchor }, effects: StateEffect.appendConfig.of(errorMark(view.state, anchor)) });
  }
  view.contentDOM.addEventListener("focus", () => readTables(dataset.tables, catalog).then(learnTables), { once: true });
  database.addEventListener("change", learnTables);
  form.addEventListener("submit", () => {
    textarea.value = view.state.doc.toString();
  });
  textarea.required = false; // browsers cannot point at a hidden field; the gateway says that a statement is empty
  textarea.hidden = true;
  textarea.after(view.dom);
  for (const button of form.querySelectorAll("button[value]")) {
    button.title = button.value === "run" ? "Ctrl+Enter or ⌘+Enter" : "Ctrl+Shift+Enter or ⌘+Shift+Enter";
  }
}

makeEditor(document.getElementById("sql"));
