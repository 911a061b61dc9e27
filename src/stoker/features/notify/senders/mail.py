"""E-mail: through an SMTP server, or the program sendmail of this host."""

from __future__ import annotations

import os
import shutil
import smtplib
import ssl
import subprocess
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

from stoker.features.notify.place_kinds import MailServer, mail_server
from stoker.features.notify.senders import SendError

_TIMEOUT_SECONDS = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def send(url: str, message: dict[str, Any]) -> None:
    """Hand the e-mail over to a mail server or to sendmail. Raises SendError."""
    mail = mail_server(url)
    letter = _letter(mail, message)
    if mail.host is None:
        _by_sendmail(mail, letter)
        return
    try:
        _by_smtp(mail, letter)
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error
        words = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        is_final = 500 <= error.smtp_code < 600
        raise SendError(f"the mail server answered {error.smtp_code} {words}", is_final) from None
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        refused = ", ".join(error.recipients)
        is_final = all(code >= 500 for code in codes)
        raise SendError(f"the mail server refused {refused} ({codes[0]})", is_final) from None
    except (OSError, smtplib.SMTPException) as error:
        raise SendError(f"cannot use the mail server {mail.host}: {error}") from None


def _letter(mail: MailServer, message: dict[str, Any]) -> EmailMessage:
    letter = EmailMessage()
    letter["Subject"] = f"[stoker] {message['subject']}"
    letter["From"] = mail.sender or f"{message['user']}@{message['host']}"
    letter["To"] = ", ".join(mail.to)
    letter["Date"] = formatdate(message["at"], localtime=True)
    letter["Message-ID"] = f"<{message['id']}@{message['host']}>"
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(f"{message['subject']}\n\n{message['body']}\n")
    return letter


def _by_smtp(mail: MailServer, letter: EmailMessage) -> None:
    assert mail.host is not None
    context = ssl.create_default_context()
    if mail.is_tls:
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            mail.host, mail.port, timeout=_TIMEOUT_SECONDS, context=context
        )
    else:
        server = smtplib.SMTP(mail.host, mail.port, timeout=_TIMEOUT_SECONDS)
    with server:
        server.ehlo_or_helo_if_needed()
        is_private = mail.is_tls or mail.host in _LOOPBACK
        if not mail.is_tls and server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
            is_private = True
        if mail.user is not None:
            if not is_private:
                raise SendError(
                    "the mail server offers no encryption, so the password is not sent; use"
                    " smtps://",
                    is_final=True,
                )
            server.login(mail.user, mail.password or "")
        server.send_message(letter)


def _by_sendmail(mail: MailServer, letter: EmailMessage) -> None:
    program = shutil.which("sendmail") or shutil.which("sendmail", path="/usr/sbin:/usr/lib")
    if program is None:
        raise SendError(
            "there is no program sendmail on this host; use smtp://HOST/?to=...", is_final=True
        )
    try:
        done = subprocess.run(
            [program, "-oi", "--", *mail.to],
            input=bytes(letter),
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SendError(f"sendmail failed: {error}") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[:200]
        raise SendError(f"sendmail failed with exit code {done.returncode}: {words}")
