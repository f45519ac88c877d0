/*
DataTables and its extensions, from the package itables; their licences are at the end of the text below. The licence of itables:

{{ library.licence|safe }}
*/
const library = "data:text/javascript;charset=utf-8,{{ library.code|safe }}";
// A missing number is last in either order.
const last = (a, b, ascending) => a === null || b === null ? (a === null) - (b === null) : ascending ? a - b : b - a;
import(library).then(({default: DataTable}) => {
  DataTable.type("measure", {
    detect: () => false,
    order: {
      pre: (value) => value === "" ? null : Number(value),
      asc: (a, b) => last(a, b, true),
      desc: (a, b) => last(a, b, false),
    },
  });
  for (const table of document.querySelectorAll("table.sortable")) {
    const label = table.closest("[role=region]").getAttribute("aria-label");
    new DataTable(table, {
      paging: false,
      autoWidth: false,
      order: [],
      layout: {topStart: table.tBodies[0].rows.length > 5 ? "search" : null, topEnd: "info", bottomStart: null, bottomEnd: null},
      columnDefs: [{targets: "number", type: "measure"}],
      language: {
        search: "Filter: ",
        entries: {_: "lines", 1: "line"},
        info: "_TOTAL_ _ENTRIES-TOTAL_",
        infoEmpty: "no lines",
        infoFiltered: "of _MAX_",
        zeroRecords: "No line has this text.",
      },
      initComplete() {
        this.api().table().container().querySelector("input")?.setAttribute("aria-label", `Filter: ${label}`);
      },
    });
  }
});
