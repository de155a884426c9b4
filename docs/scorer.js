// Sphinx's own numbers, and after every other page those that mention almost everything in passing.
var Scorer = {
  score: ([page, , , , score]) => (/^(changelog|decisions|testing|contributing)$/.test(page) ? score - 100 : score),
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
