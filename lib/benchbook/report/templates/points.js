// Long tables sort and filter.
for (const table of document.querySelectorAll("table.points")) {
  if (table.tBodies[0].rows.length <= 20) continue;
  const label = table.closest("[role=region]").getAttribute("aria-label");
  new window.DataTable(table, {
    paging: false, autoWidth: false, order: [], language: {search: "Filter:"},
    initComplete() { this.api().table().container().querySelector("input")?.setAttribute("aria-label", `Filter: ${label}`); },
  });
}
