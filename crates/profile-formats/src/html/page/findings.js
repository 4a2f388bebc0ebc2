// Shows the findings of the profile above the graphs: what it shows beyond doubt, each with its remedy.

/** The findings of each profile; those of a difference begin with the name of its side. */
function listFindings(/** @type {Measurement[]} */ measurements) {
  const ofSide = ({ findings = [] }, side) =>
    findings.map((finding) => (measurements.length > 1 ? `${SIDE_NAMES[side]}: ${finding}` : finding));
  return measurements.flatMap(ofSide);
}

function showFindings(/** @type {Measurement[]} */ measurements) {
  const items = listFindings(measurements).map((finding) => createElement("li", {}, createNameElement(finding)));
  getElement("findings").replaceChildren(...items);
  getElement("findings").hidden = items.length === 0;
}
