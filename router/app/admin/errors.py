"""Errors of the admin API, in OpenAI's form as everywhere."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException


class Error(BaseModel):
    """What is wrong."""

    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    """The field or parameter that is."""
    code: int


class ErrorAnswer(BaseModel):
    """The body of every answer that is an error."""

    error: Error


def refusal(status: int, message: str, param: str | None = None) -> JSONResponse:
    """Return an answer that is an error."""
    return JSONResponse(ErrorAnswer(error=Error(message=message, param=param, code=status)).model_dump(), status)


def refuse_in_openai_form(app: FastAPI) -> None:
    """Let an application's own errors have that form as well."""

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def refuse_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"][1:]]
        param = ".".join(place) or None
        message = str(first["msg"]).removeprefix("Value error, ")
        return refusal(422, message if param is None else f"{param}: {message}", param)
