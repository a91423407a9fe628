// Sets the colours that a person chose before anything is painted. A script of its own, since modules run later.
"use strict";
try {
  const wanted = localStorage.getItem("shardq-theme");
  if (wanted === "light" || wanted === "dark") document.documentElement.dataset.theme = wanted;
} catch { /* a browser that stores nothing: the system's colours */ }
