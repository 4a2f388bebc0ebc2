// What was measured, and what became of every tick, stack and frame.

/** What the page is called. */
function titleText(/** @type {Measured[]} */ measured) {
  const [target, other] = new Set(measured.map((each) => each.target).filter(Boolean));
  if (other) return `On-CPU: ${other}, compared with ${target}`;
  const name = target ? `On-CPU: ${target}` : "Profile";
  return measured.length > 1 ? `${name}, before and after` : name;
}

/** What the page's profiles are called where it has two. */
const SIDES = ["before", "after"];

/** For the head of the page: a line for each profile. */
function factsElements(/** @type {Measured[]} */ measured, /** @type {number[]} */ samples) {
  const hasOneTarget = measured.every(({ target }) => target === measured[0].target);
  const side = ({ target }, number) => (measured.length > 1 ? [SIDES[number], hasOneTarget ? "" : target] : []);
  const line = (each, number) => [...side(each, number), factsText(each, samples[number])].filter(Boolean).join(" · ");
  return measured.map((each, number) => element("p", {}, nameElement(line(each, number))));
}

/** Which profiles are empty and why, or "". */
function emptyTexts(/** @type {Measured[]} */ measured, /** @type {number[]} */ samples) {
  const text = (each, number) => {
    const why = emptyText(each, samples[number]);
    return why && measured.length > 1 ? `${SIDES[number]}: ${why}` : why;
  };
  return measured.map(text).filter(Boolean).join(" · ");
}

/** One profile's line. */
function factsText(/** @type {Measured} */ measured, /** @type {number} */ samples) {
  const facts = [];
  if (measured.event) {
    const cpus = measured.cpus === 1 ? "1 CPU" : `${measured.cpus} CPUs`;
    facts.push(`${measured.event} at ${measured.frequency_hz} Hz on ${cpus}`);
    facts.push(`${(measured.duration_ns / 1e9).toFixed(1)} s`);
  }
  if (measured.started_unix_ms) facts.push(new Date(measured.started_unix_ms).toLocaleString());
  const { edits, reported, lost } = measured;
  facts.push(edits ? `${NUMBER.format(samples)} of ${sampleText(reported)}: ${edits}` : sampleText(samples));
  facts.push(`${NUMBER.format(lost)} lost`);
  return facts.join(" · ");
}

/** Why there is nothing to see, or "". */
function emptyText(/** @type {Measured} */ { edits, why_empty: why }, /** @type {number} */ samples) {
  if (samples > 0) return "";
  if (edits && !why) return `No sample is left: ${edits}`;
  return `No sample was taken${why && `: ${why}`}`;
}

/** The tables of the ledger, or those of both beside each other. */
function ledgerElements(/** @type {Measured[]} */ measured) {
  const tables = measured.map(({ ledger }) => ledger.map(ledgerTable));
  if (measured.length === 1) return tables[0];
  const side = (name, number) => element("div", {}, element("h2", {}, `Ledger ${name}`), ...tables[number]);
  return SIDES.map(side);
}

function ledgerTable({ title, rows }) {
  return element("table", {}, element("caption", {}, title), element("tbody", {}, ...rows.map(ledgerRow)));
}

function ledgerRow({ what, amount, share, remedy }) {
  const advice = remedy ? [element("p", { class: "remedy" }, "→ ", nameElement(remedy))] : [];
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, nameElement(what), ...advice),
    element("td", { class: "number" }, typeof amount === "number" ? NUMBER.format(amount) : amount),
    element("td", { class: "number" }, share),
  );
}
