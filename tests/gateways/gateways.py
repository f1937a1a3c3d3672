"""The gateways: their files of packaging/gateways, with other ports, and how each is started."""

import re
from dataclasses import dataclass
from pathlib import Path

from programs import Program, call, free_port, listens

FILES = Path(__file__).parents[2] / "packaging/gateways"
# Ports in the files: the gateway, the API, the daemon, and those inside Traefik and HAProxy.
GATEWAY, API, DAEMON, INNER = "8080", "3000", "9464", "9475"
# A line names its replacement: `return 204; # fails open; "return 503;" fails closed`.
CHOICE = re.compile(r'^(\s*).*(?:#|--|//) fails open; "(.+)" fails closed$', re.MULTILINE)

# Debian's nginx.conf includes such a file in the same place.
NGINX_CONF = """
load_module /usr/lib/nginx/modules/ngx_http_js_module.so;
user root;
daemon off;
pid nginx.pid;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include quotabell.conf;
}
"""
NGINX = ["nginx", "-e", "stderr", "-p", "FOLDER", "-c", "FOLDER/nginx.conf"]
ENVOY = ["envoy", "-c", "FOLDER/envoy.yaml", "--disable-hot-restart", "--concurrency", "1", "-l", "warn"]


@dataclass
class Kind:
    """How a gateway is started, in a folder with its files."""

    command: list
    # Where its files are in production: they name each other so.
    folder: str
    # The name in packaging/gateways, and the name in the folder.
    files: dict


# By the file that has a row in docs/gateways.md.
KINDS = {
    "nginx-auth-request.conf": Kind(NGINX, "/etc/nginx", {"nginx-auth-request.conf": "quotabell.conf"}),
    "nginx-njs.conf": Kind(NGINX, "/etc/nginx", {"nginx-njs.conf": "quotabell.conf", "quotabell.js": "quotabell.js"}),
    "envoy-ext-authz.yaml": Kind(ENVOY, "/etc/envoy", {"envoy-ext-authz.yaml": "envoy.yaml"}),
    "envoy-lua.yaml": Kind(ENVOY, "/etc/envoy", {"envoy-lua.yaml": "envoy.yaml"}),
    "haproxy.cfg": Kind(
        ["haproxy", "-db", "-f", "FOLDER/haproxy.cfg"],
        "/etc/haproxy",
        {"haproxy.cfg": "haproxy.cfg", "quotabell.lua": "quotabell.lua"},
    ),
    "traefik-dynamic.yaml": Kind(
        ["traefik", "--configfile=FOLDER/traefik.yaml"],
        "/etc/traefik",
        {"traefik-dynamic.yaml": "dynamic.yaml", "traefik.yaml": "traefik.yaml"},
    ),
    "Caddyfile": Kind(
        ["caddy", "run", "--adapter", "caddyfile", "--config", "FOLDER/Caddyfile"],
        "/etc/caddy",
        {"Caddyfile": "Caddyfile"},
    ),
}


def fails_closed(text):
    """The text with the choice that it names."""
    return CHOICE.sub(r"\1\2", text)


def invalid_subject(text):
    """The text with a subject for bob that quotabell refuses."""
    return re.sub(r"(?<!key-of-)\bbob\b", "b" * 257, text)


class Gateway(Program):
    def __init__(self, name, folder, daemon_port, api_port, change=str):
        kind = KINDS[name]
        self.port = free_port()
        ports = {GATEWAY: self.port, API: api_port, DAEMON: daemon_port, INNER: free_port()}
        folder.mkdir()
        for file, used_as in kind.files.items():
            text = change((FILES / file).read_text())
            # At once, because a free port may be another documented one.
            text = re.sub(rf"\b({'|'.join(ports)})\b", lambda found: str(ports[found[0]]), text)
            (folder / used_as).write_text(text.replace(f"{kind.folder}/", f"{folder}/"))
        if kind.command is NGINX:
            (folder / "nginx.conf").write_text(NGINX_CONF)
        # Caddy writes to its home, and has a port for its administration.
        environment = {"HOME": str(folder), "CADDY_ADMIN": f"127.0.0.1:{free_port()}"}
        environment |= {"XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
        command = [part.replace("FOLDER", str(folder)) for part in kind.command]
        super().__init__(command, folder / "gateway.log", environment, cwd=folder)
        self.waits_for("serves", lambda: listens(self.port) and call(self.port, target="/health").status == 200)
