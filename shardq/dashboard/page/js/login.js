// Shows a token to the page's server, which gives the browser a cookie for it.
const form = document.getElementById("form"), token = document.getElementById("token"), why = document.getElementById("why");
const open = () => location.replace("./" + location.hash);

// A link on another site does not bring the cookie; this page's own question does.
fetch("me").then((answer) => answer.status === 200 && open(), () => {});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  why.textContent = "";
  try {
    const answer = await fetch("login", { method: "POST", headers: { "content-type": "application/json", "x-shardq": "page" }, body: JSON.stringify({ token: token.value }) });
    if (answer.ok && (await fetch("me")).status === 200) { open(); return; }
    why.textContent = answer.ok ? "The token is right, but this browser keeps no login for this address: open the page by HTTPS, and allow its cookie." : (await answer.json()).text;
  } catch { why.textContent = "The server of this page does not answer."; }
  token.select();
});
token.focus();
