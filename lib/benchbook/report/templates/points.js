// The lines of a long table are places in a list of its cells, so that each cell is there once.
for (const script of document.querySelectorAll("table.points + script")) {
  const [cells, lines] = JSON.parse(script.textContent);
  script.previousElementSibling.tBodies[0].innerHTML = lines.map((line) => `<tr>${line.map((place) => `<td>${cells[place]}`).join("")}`).join("");
}
// A point's line has the folder of its rows as its address.
for (const {lastElementChild: cell} of document.querySelectorAll("#summary tbody tr")) {
  const name = cell.textContent;
  cell.replaceChildren(Object.assign(document.createElement("a"), {id: name, href: `#${encodeURI(name)}`, textContent: name}));
}
// Long tables filter, and sort by the heading that is pressed: numbers as numbers.
for (const {tBodies: [body], tHead, parentElement: box} of document.querySelectorAll("table.points")) {
  const rows = [...body.rows];
  if (rows.length <= 20) continue;
  const filter = Object.assign(document.createElement("input"), {type: "search", placeholder: "Filter", ariaLabel: `Filter: ${box.ariaLabel}`});
  filter.oninput = () => { for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase()); };
  box.before(filter);
  for (const [place, head] of [...tHead.rows[0].cells].entries()) {
    const button = Object.assign(document.createElement("button"), {type: "button", textContent: head.textContent});
    button.onclick = () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      for (const other of tHead.rows[0].cells) other.ariaSort = other === head ? (sign > 0 ? "ascending" : "descending") : null;
      const text = (row) => row.cells[place].textContent.replace(/(?<=\d),(?=\d)/g, "");
      rows.sort((a, b) => sign * text(a).localeCompare(text(b), "en", {numeric: true}));
      body.append(...rows);
    };
    head.replaceChildren(button);
  }
}
