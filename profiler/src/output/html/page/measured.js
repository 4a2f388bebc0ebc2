// What was measured, and what became of every tick, stack and frame.

/** One line for the head of the page. */
function factsText(measured) {
  const facts = [];
  if (measured.event) {
    const cpus = measured.cpus === 1 ? "1 CPU" : `${measured.cpus} CPUs`;
    facts.push(`${measured.event} at ${measured.frequency_hz} Hz on ${cpus}`);
    facts.push(`${(measured.duration_ns / 1e9).toFixed(1)} s`);
  }
  if (measured.started_unix_ms) facts.push(new Date(measured.started_unix_ms).toLocaleString());
  return facts;
}

/** The ledger's tables. */
function ledgerElements(sections) {
  return sections.map(({ title, rows }) =>
    element(
      "table",
      {},
      element("caption", {}, title),
      element("tbody", {}, ...rows.map(ledgerRow)),
    ),
  );
}

function ledgerRow({ what, amount, share }) {
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, nameElement(what)),
    element("td", { class: "number" }, typeof amount === "number" ? NUMBER.format(amount) : amount),
    element("td", { class: "number" }, share),
  );
}
