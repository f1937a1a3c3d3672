"""Runs aiosmtpd for a test: mail_server.py FOLDER PORT CERTIFICATE KEY.

It asks for STARTTLS, then for the user `alerts` with the password `p:a/s%s word`, and puts each mail into FOLDER/mail/new. It ends with
the process that started it: stdin tells.
"""

import logging
import pathlib
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

# The test includes a client that does not trust the certificate.
logging.getLogger("mail.log").setLevel(logging.CRITICAL)
folder, port, certificate, key = sys.argv[1:]
mailbox = pathlib.Path(folder) / "mail"
(mailbox / "new").mkdir(parents=True)


class Mailbox:
    count = 0

    async def handle_DATA(self, server, session, envelope):
        self.count += 1
        written = mailbox / str(self.count)
        written.write_bytes(envelope.content)
        written.rename(mailbox / "new" / str(self.count))
        return "250 2.0.0 taken"


def authenticate(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login, data.password) == (b"alerts", b"p:a/s%s word"), handled=False)


context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(certificate, key)
controller = Controller(
    Mailbox(),
    hostname="127.0.0.1",
    port=int(port),
    tls_context=context,
    require_starttls=True,
    auth_required=True,
    authenticator=authenticate,
)
controller.start()
sys.stdin.read()
controller.stop()
